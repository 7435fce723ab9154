"""Running executions of a worker that was, or may have been, restarted under its name."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.worker import Worker
from dlq_handler.timeouts.case import StaleCase, WorkerView
from dlq_handler.timeouts.decide import decide_stale
from dlq_handler.timeouts.decision import End, Wait, stale_result
from dlq_handler.timeouts.options import MonitorOptions
from dlq_handler.workers.worker_process import KEPT_SECONDS, KnownConnection, ProcessView
from tests.support.builders import NOON, an_execution
from tests.unit.timeouts.test_decide import LIMITS


def ago(seconds: float) -> datetime:
    return NOON - timedelta(seconds=seconds)


def a_process(*, absent: float | None = 100.0, seen: float = 30.0) -> ProcessView:
    """The connection was absent so many seconds ago, and first seen so many seconds ago."""
    return ProcessView(
        known=KnownConnection(
            worker_id=7,
            checked_at=NOON,
            observed_at=NOON,
            connection="new",
            absent_at=None if absent is None else ago(absent),
            found_at=ago(seen),
        )
    )


def unfound(since: float, *, seen: float | None = None) -> ProcessView:
    """For so many seconds no look has found the connection, which was first seen so many seconds ago."""
    look = KnownConnection(
        worker_id=7,
        checked_at=NOON,
        connection=None if seen is None else "old",
        found_at=None if seen is None else ago(seen),
        missing_since=ago(since),
    )
    return ProcessView(known=look, is_found=False, trouble="the management API is away")


AWAY = unfound(5000)


def a_case(process: ProcessView | None, age_seconds: float = 200, **changes: Any) -> StaleCase:
    row = Worker(id=7, heartbeat_age_seconds=2.0, last_heartbeat=ago(2))
    execution = an_execution(status=ExecutionStatus.RUNNING, updated=ago(age_seconds), worker_id=7)
    fields: dict[str, Any] = {"now": NOON, "watched_seconds": 3600, "limits": LIMITS}
    return StaleCase(execution=execution, worker=WorkerView(row=row, process=process), **(fields | changes))


def test_run_of_a_former_process_is_abandoned_at_the_second_look() -> None:
    decision = decide_stale(a_case(a_process(seen=30)))
    assert isinstance(decision, End)
    assert decision.becomes is ExecutionStatus.ABANDONED
    assert decision.explanation == "worker 7 was restarted: the process that began this run has ended"
    assert decision.evidence["consumer_connection"] == "new"
    assert decision.evidence["connection_absent_at"] == ago(100).isoformat()
    assert decision.evidence["connection_seen_at"] == ago(30).isoformat()
    execution = a_case(None).execution
    assert stale_result(execution, decision, NOON).keys() == {
        "error", "abandoned_by", "original_status", "worker", "reconciled_at", "evidence",
    }  # fmt: skip
    assert stale_result(execution, decision, NOON)["error"] == f"Worker restarted: {decision.explanation}"

    first = decide_stale(a_case(a_process(seen=29)))
    assert isinstance(first, Wait)
    assert first.until == ago(29) + timedelta(seconds=30)


def test_run_of_the_present_process_is_never_ended() -> None:
    assert isinstance(decide_stale(a_case(a_process(absent=90_100, seen=90_000), age_seconds=90_000)), Wait)


@pytest.mark.parametrize(
    "process",
    [AWAY, unfound(30), a_process(absent=None, seen=30), a_process(absent=1000, seen=30)],
)
def test_run_of_an_unknown_process_ends_a_minute_after_its_limit(process: ProcessView) -> None:
    young = decide_stale(a_case(process, age_seconds=359))
    assert isinstance(young, Wait)
    assert young.until == ago(359) + timedelta(seconds=360)
    assert "at its limit of 360 s" in young.explanation
    old = decide_stale(a_case(process, age_seconds=360))
    assert isinstance(old, End)
    assert (old.becomes, old.error) == (ExecutionStatus.ABANDONED, "Execution timeout")
    assert old.evidence["run_limit_seconds"] == 360


@pytest.mark.parametrize("process", [unfound(29), a_process(absent=None, seen=29)])
def test_limit_takes_two_looks(process: ProcessView) -> None:
    waiting = decide_stale(a_case(process, age_seconds=1000))
    assert isinstance(waiting, Wait)
    assert waiting.until == NOON + timedelta(seconds=1)
    assert waiting.explanation.endswith("a second check must confirm it")


@pytest.mark.parametrize(("confirm_after", "kept"), [(30, KEPT_SECONDS), (10, KEPT_SECONDS), (100, 300)])
def test_run_that_was_proven_to_be_the_present_processs_takes_longer(
    confirm_after: float, kept: float
) -> None:
    limits = replace(LIMITS, monitor=MonitorOptions(confirm_after_seconds=confirm_after))
    waiting = decide_stale(a_case(unfound(kept - 1, seen=2000), age_seconds=1000, limits=limits))
    assert isinstance(waiting, Wait)
    assert waiting.until == NOON + timedelta(seconds=1)
    assert isinstance(decide_stale(a_case(unfound(kept, seen=2000), age_seconds=1000, limits=limits)), End)
    assert isinstance(decide_stale(a_case(unfound(0, seen=500), age_seconds=1000, limits=limits)), End), (
        "never proven: unknown since the first look with the connection, and now"
    )


def test_own_limit_of_a_workflow_task_counts_instead() -> None:
    assert isinstance(decide_stale(a_case(AWAY, age_seconds=660, own_run_limit_seconds=600)), End)
    assert isinstance(decide_stale(a_case(AWAY, age_seconds=659, own_run_limit_seconds=600)), Wait)
    assert isinstance(decide_stale(a_case(AWAY, age_seconds=70, own_run_limit_seconds=10)), End)


def test_limit_waits_while_workers_may_not_have_been_able_to_write() -> None:
    waiting = decide_stale(a_case(AWAY, age_seconds=1000, watched_seconds=89))
    assert isinstance(waiting, Wait)
    assert waiting.until == NOON + timedelta(seconds=1)


def test_time_across_a_jump_of_the_clock_does_not_count() -> None:
    assert isinstance(decide_stale(a_case(AWAY, age_seconds=1000, steady_since=ago(100))), Wait)
    assert isinstance(decide_stale(a_case(a_process(seen=500), age_seconds=1000, steady_since=ago(29))), Wait)


@given(age=st.floats(0, 1e6), watched=st.floats(0, 1e6))
def test_without_the_rule_no_run_of_a_worker_that_reports_is_ended(age: float, watched: float) -> None:
    assert isinstance(decide_stale(a_case(None, age_seconds=age, watched_seconds=watched)), Wait)


@given(
    age=st.floats(0, 1e5),
    absent=st.none() | st.floats(0, 1e5),
    seen=st.floats(0, 1e5),
    watched=st.floats(0, 1e5),
)
def test_run_that_began_with_the_present_connection_or_within_its_limit_is_never_ended_unless_proven(
    age: float, absent: float | None, seen: float, watched: float
) -> None:
    absent = None if absent is None else max(absent, seen)
    decision = decide_stale(
        a_case(a_process(absent=absent, seen=seen), age_seconds=age, watched_seconds=watched)
    )
    if isinstance(decision, End):
        is_proven = absent is not None and age > absent and seen >= 30
        assert is_proven or (age >= 360 and age > seen >= 30)
