"""Why an execution that has not ended still waits, and what is said of those who should look for it."""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from dlq_handler.explain.records import Records, Waiting
from dlq_handler.explain.waiting import (
    BROKER_IS_UNAVAILABLE,
    GATE_IS_UNKNOWN,
    RESTART_IS_HIDDEN,
    Replicas,
    waiting_of,
)
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.story_sql import ExecutionFacts
from dlq_handler.host.worker import AvailabilityPolicy, QueueObservation, Worker
from dlq_handler.safety.brake import BrakeState, BrakeView
from dlq_handler.safety.options import BrakeOptions
from dlq_handler.timeouts.case import StaleCase, StaleLimits, WorkerView
from dlq_handler.timeouts.decide import decide_stale
from dlq_handler.timeouts.decide_unscheduled import UnscheduledDecision
from dlq_handler.timeouts.decision import End, NotStale, RepublishRequest, StaleOutcome, Wait
from dlq_handler.timeouts.options import MonitorOptions
from dlq_handler.workers.worker_observation import WorkerObservation
from dlq_handler.workers.worker_process import KnownConnection, ProcessView
from tests.support.builders import NOON, an_execution
from tests.support.records import a_letter_record, a_stale_record

LIMITS = StaleLimits(
    monitor=MonitorOptions(canceling_timeout_seconds=600),
    deadline_seconds=330,
    after_ttl_seconds=30,
    availability=AvailabilityPolicy(unavailable_after_seconds=90),
)
DISPATCHED = NOON - timedelta(seconds=100)
HORIZON = DISPATCHED + timedelta(seconds=330)
HOLD_UNTIL = NOON + timedelta(seconds=600)


def the_sidecars(brake: dict[str, Any] | None = None, **changes: Any) -> Replicas:
    """One leads, and nothing keeps it from acting."""
    given: dict[str, Any] = {
        "is_led": True,
        "brake": BrakeView(state=BrakeState(**(brake or {})), ended_last_minute=0, now=NOON),
        "brake_policy": BrakeOptions(max_decisions_per_minute=10, hold_seconds=600),
    }
    return Replicas(**(given | changes))


def tripped(hold_until: datetime | None = HOLD_UNTIL) -> dict[str, Any]:
    return {"tripped_at": NOON, "hold_until": hold_until, "tripped_by": "one", "explanation": "too many"}


a_decision = partial(
    a_stale_record, attempt_updated_at=DISPATCHED, original_status="scheduled", decided_at=NOON
)


RELEASED = {"released_at": NOON, "released_until": HOLD_UNTIL, "released_by": "an operator"}


def waiting(
    decision: UnscheduledDecision,
    replicas: Replicas | None = None,
    case: StaleCase | None = None,
    **records: Any,
) -> Waiting:
    row = ExecutionFacts(
        id=1,
        status="scheduled",
        is_terminal=False,
        action_ref="core.echo",
        created=DISPATCHED,
        updated=DISPATCHED,
    )
    found_records = Records(execution=row, now=NOON, **records)
    return waiting_of(decision, records=found_records, replicas=replicas or the_sidecars(), case=case)


def a_case(status: str = "scheduled", heartbeat_age_seconds: float | None = 2.0, **worker: Any) -> StaleCase:
    """Dispatched to worker 7 a hundred seconds ago."""
    row = Worker(id=7, heartbeat_age_seconds=heartbeat_age_seconds)
    view: dict[str, Any] = {"row": row, "queue": None, "is_queue_known": True} | worker
    return StaleCase(
        execution=an_execution(status=ExecutionStatus(status), updated=DISPATCHED),
        worker=WorkerView(**view),
        now=NOON,
        watched_seconds=90,
        limits=LIMITS,
    )


def seen(case: StaleCase, replicas: Replicas | None = None, **records: Any) -> Waiting:
    return waiting(decide_stale(case), replicas, case, **records)


WAIT = Wait("its message may still be in the worker's queue", HORIZON, {"age_seconds": 1.0})
END = End(ExecutionStatus.FAILED, "its queue has no consumer", {}, 330)
AGAIN = RepublishRequest("requested for 900 s", {})


def test_lawful_wait_says_why_and_until_when() -> None:
    found = waiting(WAIT)
    assert (found.explanation, found.until, found.is_earliest) == (WAIT.explanation, HORIZON, False)
    assert found.unwatched is None
    assert found.notes == []


@pytest.mark.parametrize(
    ("changes", "is_said"),
    [
        ({}, True),
        ({"received_at": DISPATCHED - timedelta(hours=1), "repeated_at": DISPATCHED}, True),
        ({"received_at": DISPATCHED - timedelta(seconds=1)}, False),
        ({"reason": "expired"}, False),
        ({"worker_id": 7}, False),
    ],
    ids=["rejected", "rejected again", "of an earlier state", "not rejected", "a dispatch"],
)
def test_a_request_whose_rejection_is_on_record_is_not_with_the_scheduler(
    changes: dict[str, Any], is_said: bool
) -> None:
    again_at = DISPATCHED + timedelta(seconds=900)
    rejected: dict[str, Any] = {"reason": "rejected", "received_at": DISPATCHED, "worker_id": None}
    found = waiting(Wait("not yet", again_at, {}), letters=[a_letter_record(**(rejected | changes))])
    assert any("2026-11-16 11:58:20Z" in note for note in found.notes) is is_said
    assert found.until == again_at


def test_what_is_due_says_what_stands_in_the_way() -> None:
    refused = a_decision(StaleOutcome.UPDATE_FAILED, error="22023: too long", next_attempt_at=HORIZON)
    other_attempt = a_decision(StaleOutcome.UPDATE_FAILED, attempt_updated_at=NOON, error="of long ago")
    found = waiting(END, decisions=[refused, other_attempt])
    assert found.explanation == "the next scan makes it failed: its queue has no consumer"
    assert found.until == HORIZON
    assert found.notes == ["the database refused to let it end: 22023: too long", GATE_IS_UNKNOWN]


def test_what_is_not_ours_to_end_says_so() -> None:
    assert "dlq-handler does not end it" in waiting(NotStale("running without a worker")).explanation
    assert waiting(AGAIN).explanation.startswith("about to be requested again")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"is_led": False, "lease_ended_at": NOON},
            "no replica leads (the lease ended at 2026-11-16 12:00:00Z)",
        ),
        ({"is_led": False}, "no replica leads (no lease is held)"),
        ({"is_monitored": False}, "dlq_handler.monitor.enabled is false"),
    ],
    ids=["lease ended", "no lease", "monitor is off"],
)
def test_without_a_running_monitor_no_time_is_promised(changes: dict[str, Any], words: str) -> None:
    replicas = the_sidecars(**changes)
    for decision, explanation in (
        (END, "a scan would make it failed: its queue has no consumer"),
        (AGAIN, "would be requested again: requested for 900 s"),
        (WAIT, WAIT.explanation),
    ):
        found = waiting(decision, replicas)
        assert found.unwatched is not None
        assert found.unwatched.startswith(words)
        assert "no replica scans for it" in found.unwatched
        assert found.explanation == explanation
        assert GATE_IS_UNKNOWN not in found.notes


@pytest.mark.parametrize(
    "decision", [WAIT, END, AGAIN, NotStale("a parent")], ids=lambda one: type(one).__name__
)
def test_brake_that_holds_or_limits_is_named_with_every_decision(decision: UnscheduledDecision) -> None:
    for state in (tripped(), tripped(None), tripped(NOON)):
        assert [
            note for note in waiting(decision, the_sidecars(state)).notes if note.startswith("brake: tripped")
        ]
    assert not [note for note in waiting(decision, the_sidecars(RELEASED)).notes if "brake" in note]


@pytest.mark.parametrize(
    ("decision", "hold_until", "until"),
    [(WAIT, HOLD_UNTIL, HORIZON), (END, HOLD_UNTIL, HOLD_UNTIL), (END, None, None)],
    ids=["not due yet", "due", "due, held until released"],
)
def test_under_a_brake_that_holds_every_time_is_the_earliest(
    decision: Wait | End, hold_until: datetime | None, until: datetime | None
) -> None:
    found = waiting(decision, the_sidecars(tripped(hold_until)))
    assert (found.until, found.is_earliest) == (until, True)
    assert "the next scan" not in found.explanation


def test_shadow_mode_names_its_earlier_decision() -> None:
    replicas = the_sidecars(is_shadow=True)
    assert waiting(END, replicas).explanation.startswith("the next scan would make it failed: ")
    assert waiting(AGAIN, replicas).explanation.startswith("would be requested again")
    for decision in (WAIT, END, AGAIN):
        assert waiting(decision, replicas).notes[0].startswith("shadow mode")
    decided = [
        a_decision(StaleOutcome.FAILED, is_shadow=True),
        a_decision(StaleOutcome.REQUEST_REPUBLISHED, is_shadow=True),
    ]
    already = "decided in shadow already, at 2026-11-16 12:00:00Z: it would have been "
    assert waiting(END, replicas, decisions=decided).explanation.startswith(f"{already}failed: ")
    assert waiting(AGAIN, replicas, decisions=decided).explanation.startswith(f"{already}requested again")
    assert waiting(END, decisions=decided).explanation.startswith("the next scan makes it failed")
    of_another = [a_decision(StaleOutcome.FAILED, is_shadow=True, attempt_updated_at=NOON)]
    assert "already" not in waiting(END, replicas, decisions=of_another).explanation


def test_while_the_broker_is_away_the_deadline_is_the_earliest() -> None:
    found = seen(a_case(is_queue_known=False))
    assert (found.until, found.is_earliest) == (HORIZON, True)
    assert BROKER_IS_UNAVAILABLE in found.notes
    assert BROKER_IS_UNAVAILABLE not in seen(a_case("running", is_queue_known=False)).notes


LOOKED_FOR = "; the timeout monitor decides at 2026-11-16 12:03:50Z"
LOST = "its dead letter is on the route, waits in the intake queue, or was lost"


@pytest.mark.parametrize(
    ("queue", "explanation"),
    [
        (QueueObservation(consumers=0, ready=0), f"it has left the worker's queue: {LOST}{LOOKED_FOR}"),
        (
            QueueObservation(consumers=1, ready=0, unacked=0),
            f"it has left the worker's queue: its worker has just received it, {LOST}{LOOKED_FOR}",
        ),
        (QueueObservation(consumers=1, ready=0), WAIT.explanation),
        (QueueObservation(consumers=1, ready=0, unacked=1), WAIT.explanation),
        (QueueObservation(consumers=0, ready=1, unacked=0), WAIT.explanation),
    ],
    ids=["unattended", "empty", "not known", "held", "ready"],
)
def test_message_is_in_no_queue_that_is_known_to_be_empty(queue: QueueObservation, explanation: str) -> None:
    assert seen(a_case(queue=queue)).explanation == explanation


def test_letter_on_record_is_not_awaited_and_no_scan_promised_without_a_monitor() -> None:
    case = a_case(queue=QueueObservation(consumers=0, ready=0))
    assert (
        "its dead letter was received"
        in seen(case, letters=[a_letter_record(attempt_updated_at=DISPATCHED)]).explanation
    )
    assert (
        "its dead letter is on the route"
        in seen(case, letters=[a_letter_record(attempt_updated_at=NOON)]).explanation
    )
    assert "the monitor looks" not in seen(case, the_sidecars(is_led=False)).explanation


def test_what_runs_well_says_so() -> None:
    assert seen(a_case("running", 0.4)).explanation == "it runs; worker 7 reported 0 s ago; nothing to do"
    assert "whether worker 7 is alive is unknown" in seen(a_case("running", None)).explanation
    assert "a second check must confirm it" in seen(a_case("running", 91)).explanation


def test_what_runs_on_a_worker_whose_restart_would_not_be_noticed_says_so() -> None:
    assert RESTART_IS_HIDDEN in seen(a_case("running", 0.4)).notes
    assert RESTART_IS_HIDDEN not in seen(a_case("running", 91)).notes
    assert RESTART_IS_HIDDEN not in seen(a_case("scheduled", 0.4)).notes
    case = a_case("running", 0.4)
    look = KnownConnection(worker_id=7, checked_at=NOON, missing_since=NOON)
    process = ProcessView(known=look, is_found=False, trouble="the API is away")
    blind = replace(case, worker=replace(case.worker, process=process))
    found_records = seen(blind)
    assert RESTART_IS_HIDDEN not in found_records.notes
    assert found_records.explanation == (
        "it runs; worker 7 reported 0 s ago; whether worker 7 was restarted after this run began is unknown "
        "(the API is away); it is abandoned if it still runs at its limit of 360 s"
    )
    assert found_records.until == case.execution.updated + timedelta(seconds=360)


def test_evidence_has_nothing_that_the_one_who_asks_has_assumed_or_seen_himself() -> None:
    own = WorkerObservation(worker_id=7, observed_at=NOON, unavailable_since=NOON)
    found = seen(a_case("running", 91, check=own))
    assert found.evidence["heartbeat_age_seconds"] == 91
    assert not {"checks", "watched_seconds"} & found.evidence.keys()
    before = WorkerObservation(worker_id=7, observed_at=NOON, unavailable_since=DISPATCHED)
    assert seen(a_case("running", 91, check=before)).evidence["checks"] == {
        "found_unavailable": DISPATCHED.isoformat()
    }
    assert not waiting(Wait("", None, {"scheduler_queue_quiet_seconds": 60.0})).evidence
