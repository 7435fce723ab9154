"""The decision table of rules §2, row by row, and what must hold whatever comes in."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.dead_letters.decide import decide_dead_letter
from dlq_handler.dead_letters.decision import Decision, Fail, Outcome
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.host.execution import TRANSITIONS, Execution, ExecutionStatus
from dlq_handler.host.worker import Worker
from tests.support.builders import NOON, a_dead_letter, a_death, a_worker, an_execution, circumstances

ALIVE = {7: a_worker()}
GONE = {7: a_worker(heartbeat_age_seconds=91)}


def decided(
    letter: DeadLetter,
    execution: Execution | None,
    workers: dict[int, Worker] | None = None,
    link_age: float = 3600,
) -> Decision:
    return decide_dead_letter(
        letter, execution, ALIVE if workers is None else workers, circumstances(link_age_seconds=link_age)
    )


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"parse_error": "body is not JSON"}, Outcome.UNREADABLE),
        ({"parse_error": "execution_id is null", "execution_id": None}, Outcome.UNREADABLE),
        ({"execution_id": None}, Outcome.UNREADABLE),
        ({"message_type": "ExecutionCompleted"}, Outcome.UNRELATED),
        ({"message_type": "EventCreated", "execution_id": None}, Outcome.UNRELATED),
        ({"worker_id": None, "first_death_queue": "attune.execution.requests.queue"}, Outcome.UNRELATED),
        ({"worker_id": None, "first_death_queue": None}, Outcome.UNRELATED),
        ({"worker_id": 8}, Outcome.STALE_ATTEMPT),
        ({"attempt_updated_at": NOON + timedelta(microseconds=1)}, Outcome.STALE_ATTEMPT),
        ({"attempt_updated_at": NOON - timedelta(microseconds=1)}, Outcome.STALE_ATTEMPT),
        ({}, Outcome.FAILED),
        ({"worker_id": None}, Outcome.FAILED),
        ({"death": None}, Outcome.FAILED),
        ({"attempt_updated_at": None}, Outcome.FAILED),
        ({"attempt_updated_at": None, "death": a_death(time=NOON - timedelta(seconds=5))}, Outcome.FAILED),
        (
            {"attempt_updated_at": None, "death": a_death(time=NOON - timedelta(seconds=6))},
            Outcome.STALE_ATTEMPT,
        ),
        ({"attempt_updated_at": None, "death": None}, Outcome.STALE_ATTEMPT),
        (
            {"attempt_updated_at": None, "death": a_death(time=datetime.max.replace(tzinfo=UTC))},
            Outcome.FAILED,
        ),
        (
            {"attempt_updated_at": None, "death": a_death(time=datetime.min.replace(tzinfo=UTC))},
            Outcome.STALE_ATTEMPT,
        ),
    ],
)
def test_letter_of_a_scheduled_execution(changes: dict[str, object], outcome: Outcome) -> None:
    assert decided(a_dead_letter(**changes), an_execution()).outcome is outcome


def test_a_request_that_the_scheduler_rejected_is_unrelated() -> None:
    at = {"worker_id": None, "first_death_queue": "attune.execution.requests.queue"}
    rejected = decided(a_dead_letter(death=a_death(reason="rejected"), **at), an_execution())
    expired = decided(a_dead_letter(death=a_death(reason="expired"), **at), an_execution())

    assert {rejected.outcome, expired.outcome} == {Outcome.UNRELATED}
    assert "the sender is not at fault" in rejected.explanation
    assert expired.explanation == "no worker_id, and it did not die in a worker's queue"


def test_letter_without_a_row_is_an_unknown_execution() -> None:
    assert decided(a_dead_letter(), None).outcome is Outcome.UNKNOWN_EXECUTION


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (ExecutionStatus.REQUESTED, Outcome.SUPERSEDED),
        (ExecutionStatus.SCHEDULING, Outcome.SUPERSEDED),
        (ExecutionStatus.CANCELING, Outcome.LEFT_TO_MONITOR),
        (ExecutionStatus.COMPLETED, Outcome.ALREADY_TERMINAL),
        (ExecutionStatus.FAILED, Outcome.ALREADY_TERMINAL),
        (ExecutionStatus.CANCELLED, Outcome.ALREADY_TERMINAL),
        (ExecutionStatus.TIMEOUT, Outcome.ALREADY_TERMINAL),
        (ExecutionStatus.ABANDONED, Outcome.ALREADY_TERMINAL),
    ],
)
def test_other_statuses_are_left_untouched(status: ExecutionStatus, outcome: Outcome) -> None:
    assert decided(a_dead_letter(), an_execution(status=status), GONE).outcome is outcome


RUNNING = an_execution(status=ExecutionStatus.RUNNING, updated=NOON + timedelta(seconds=1))


@pytest.mark.parametrize(
    ("execution", "workers", "link_age", "outcome"),
    [
        (RUNNING, ALIVE, 3600, Outcome.LEFT_TO_MONITOR),
        (RUNNING, GONE, 3600, Outcome.FAILED),
        (RUNNING, {7: a_worker(heartbeat_age_seconds=90)}, 3600, Outcome.LEFT_TO_MONITOR),
        (RUNNING, {7: a_worker(heartbeat_age_seconds=None)}, 3600, Outcome.LEFT_TO_MONITOR),
        (RUNNING, {}, 3600, Outcome.FAILED),
        (an_execution(status=ExecutionStatus.RUNNING, worker_id=None), {}, 3600, Outcome.FAILED),
        (an_execution(status=ExecutionStatus.RUNNING, worker_id=None), GONE, 3600, Outcome.LEFT_TO_MONITOR),
    ],
)
def test_running_execution_falls_only_with_its_worker(
    execution: Execution, workers: dict[int, Worker], link_age: float, outcome: Outcome
) -> None:
    assert decided(a_dead_letter(), execution, workers, link_age).outcome is outcome


def test_after_a_database_outage_old_heartbeats_prove_nothing() -> None:
    assert decided(a_dead_letter(), RUNNING, GONE, link_age=89).outcome is Outcome.LEFT_TO_MONITOR


statuses = st.sampled_from(ExecutionStatus)
FIRST_MOMENT, LAST_MOMENT = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
moments = st.sampled_from([FIRST_MOMENT, LAST_MOMENT, NOON]) | st.datetimes(timezones=st.just(UTC))
letters = st.builds(
    a_dead_letter,
    message_type=st.sampled_from(["ExecutionRequested", "ExecutionCompleted", "", None]),
    execution_id=st.none() | st.just(1),
    worker_id=st.none() | st.sampled_from([7, 8]),
    attempt_updated_at=st.none() | st.just(NOON) | moments,
    death=st.none() | st.builds(a_death, time=st.none() | moments, reason=st.text(max_size=5)),
    first_death_queue=st.none()
    | st.sampled_from(["worker.7.executions", "worker.x.executions", "other", ""]),
    parse_error=st.none() | st.just("odd"),
)
executions = st.none() | st.builds(
    an_execution,
    status=statuses,
    worker_id=st.none() | st.sampled_from([7, 8]),
    updated=st.just(NOON) | moments,
)
worker_rows = st.dictionaries(
    st.sampled_from([7, 8]),
    st.builds(a_worker, heartbeat_age_seconds=st.none() | st.floats(min_value=-10, max_value=1e6)),
)


@given(letters, executions, worker_rows, st.floats(min_value=0, max_value=1e6))
def test_nothing_makes_a_terminal_row_change_and_every_letter_gets_one_outcome(
    letter: DeadLetter, execution: Execution | None, workers: dict[int, Worker], link_age: float
) -> None:
    decision = decided(letter, execution, workers, link_age)
    assert decision.outcome in Outcome
    assert decision.explanation
    if isinstance(decision, Fail):
        assert execution is not None
        assert ExecutionStatus.FAILED in TRANSITIONS[execution.status]
        assert letter.parse_error is None
        if execution.status is ExecutionStatus.SCHEDULED:
            assert letter.attempt_updated_at in (None, execution.updated)
        else:
            seen = workers.get(execution.worker_id or letter.worker_id or 7)
            assert seen is None or ((seen.heartbeat_age_seconds or 0) > 90 and link_age >= 90)
