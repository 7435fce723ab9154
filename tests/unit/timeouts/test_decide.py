"""The rules of the timeout monitor, by table and by property."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.broker.publish_times import PublishView
from dlq_handler.host.execution import TRANSITIONS, ExecutionStatus
from dlq_handler.host.messages import ending
from dlq_handler.host.worker import AvailabilityPolicy, QueueObservation, Worker
from dlq_handler.timeouts.case import StaleCase, StaleLimits, WorkerView
from dlq_handler.timeouts.decide import decide_stale
from dlq_handler.timeouts.decision import End, NotStale, Wait, stale_result
from dlq_handler.timeouts.options import MonitorOptions
from dlq_handler.workers.worker_observation import WorkerObservation
from tests.support.builders import COMPLETIONS, NOON, an_execution

LIMITS = StaleLimits(
    monitor=MonitorOptions(
        confirm_after_seconds=30, held_timeout_seconds=3600, canceling_timeout_seconds=600
    ),
    deadline_seconds=330,
    after_ttl_seconds=30,
    availability=AvailabilityPolicy(unavailable_after_seconds=90),
)
NOW = NOON
SECOND = timedelta(seconds=1)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def a_row(heartbeat_age_seconds: float | None = 2.0) -> Worker:
    heartbeat = None if heartbeat_age_seconds is None else ago(heartbeat_age_seconds)
    return Worker(id=7, heartbeat_age_seconds=heartbeat_age_seconds, last_heartbeat=heartbeat)


def a_check(**changes: Any) -> WorkerObservation:
    fields: dict[str, Any] = {"worker_id": 7, "observed_at": NOW}
    return WorkerObservation(**(fields | changes))


FRESH, DEAD, NEVER, GONE = a_row(), a_row(91), a_row(None), None
BUSY = QueueObservation(consumers=1, ready=0, unacked=3, ttl_ms=300_000)
EMPTY = QueueObservation(consumers=1, ready=0, unacked=0, ttl_ms=300_000)
UNMANAGED = QueueObservation(consumers=1, ready=0)
UNATTENDED = QueueObservation(consumers=0, ready=5, unacked=0)
QUICK = PublishView(quick_seconds=10_000, confirmed_seconds_ago=3)
WITHOUT_TTL = QueueObservation(consumers=0, ready=1, unacked=0, has_no_ttl=True)


LOST: dict[str, Any] = {"queue": EMPTY, "check": a_check(empty_since=ago(30))}
UNTAKEN: dict[str, Any] = {"queue": UNATTENDED, "check": a_check(unconsumed_since=ago(30))}


def a_case(
    status: str = "scheduled",
    age_seconds: float = 1000,
    *,
    worker_id: int | None = 7,
    watched_seconds: float = 3600,
    steady_since: datetime | None = None,
    longest_ttl_ms: int | None = None,
    publishes: PublishView = QUICK,
    intake_undrained_seconds: float | None = None,
    **worker: Any,
) -> StaleCase:
    view: dict[str, Any] = {"row": FRESH, "queue": BUSY, "is_queue_known": True} | worker
    return StaleCase(
        execution=an_execution(status=ExecutionStatus(status), updated=ago(age_seconds), worker_id=worker_id),
        worker=WorkerView(**view),
        now=NOW,
        watched_seconds=watched_seconds,
        steady_since=steady_since,
        longest_ttl_ms=longest_ttl_ms,
        publishes=publishes,
        intake_undrained_seconds=intake_undrained_seconds,
        limits=LIMITS,
    )


@pytest.mark.parametrize(
    "worker",
    [
        {"row": DEAD, "queue": UNATTENDED},
        {"row": GONE, "queue": UNATTENDED},
        {"row": DEAD, "queue": None},
        {"row": DEAD, "check": a_check(unavailable_since=ago(30), last_heartbeat=ago(91))},
        {"row": GONE, "check": a_check(unavailable_since=ago(30))},
        {"row": DEAD, "queue": replace(WITHOUT_TTL, ready=0)},
        {"queue": None, "check": a_check(unconsumed_since=ago(30))},
        {"queue": UNATTENDED, "check": a_check(unconsumed_since=ago(30))},
        {"row": NEVER, "queue": UNATTENDED, "check": a_check(unconsumed_since=ago(30))},
        {"queue": EMPTY, "check": a_check(empty_since=ago(30))},
    ],
)
def test_scheduled_execution_without_a_taker_fails_at_the_deadline_and_not_before(
    worker: dict[str, Any],
) -> None:
    decision = decide_stale(a_case(age_seconds=330, **worker))
    assert isinstance(decision, End)
    assert (decision.becomes, decision.limit_seconds) == (ExecutionStatus.FAILED, 330)

    young = decide_stale(a_case(age_seconds=329.9, **worker))
    assert isinstance(young, Wait)
    assert young.until == ago(329.9) + 330 * SECOND


def test_scheduled_execution_without_a_worker_fails_beyond_the_horizon() -> None:
    without_worker: dict[str, Any] = {"worker_id": None, "row": None, "queue": None, "is_queue_known": False}
    assert isinstance(decide_stale(a_case(age_seconds=330, longest_ttl_ms=0, **without_worker)), End)
    assert isinstance(decide_stale(a_case(age_seconds=329, longest_ttl_ms=0, **without_worker)), Wait)


@pytest.mark.parametrize(
    ("worker", "until"),
    [
        ({"queue": BUSY}, ago(1000) + 3600 * SECOND),
        ({"queue": UNMANAGED}, ago(1000) + 3600 * SECOND),
        ({"row": NEVER, "queue": BUSY}, ago(1000) + 3600 * SECOND),
        ({"row": DEAD, "watched_seconds": 89, "queue": BUSY}, ago(1000) + 3600 * SECOND),
        # Own publishes were not watched for a whole deadline, or one of them was slow.
        ({**LOST, "publishes": PublishView()}, None),
        ({**LOST, "publishes": replace(QUICK, quick_seconds=329)}, NOW + SECOND),
        ({**LOST, "publishes": replace(QUICK, confirmed_seconds_ago=61)}, None),
        ({**LOST, "publishes": replace(QUICK, quick_seconds=0, slow_seconds_ago=0)}, None),
        ({**UNTAKEN, "publishes": replace(QUICK, quick_seconds=329)}, NOW + SECOND),
        ({**UNTAKEN, "queue": None, "publishes": replace(QUICK, quick_seconds=329)}, NOW + SECOND),
        # The deadline is that of its queue.
        (
            {**LOST, "queue": replace(EMPTY, ttl_ms=600_000), "publishes": replace(QUICK, quick_seconds=600)},
            NOW + 30 * SECOND,
        ),
        ({"queue": None, "is_queue_known": False}, None),
        ({"queue": EMPTY, "check": None}, NOW + 30 * SECOND),
        ({"queue": EMPTY, "check": a_check(empty_since=NOW)}, NOW + 30 * SECOND),
        ({"queue": EMPTY, "check": a_check(empty_since=ago(29))}, NOW + SECOND),
        # That check was before the dispatch.
        ({"queue": EMPTY, "check": a_check(empty_since=ago(1001))}, NOW + 30 * SECOND),
        # With a fresh heartbeat, one check at a queue without a consumer is not enough.
        ({"queue": UNATTENDED, "check": None}, NOW + 30 * SECOND),
        ({"queue": UNATTENDED, "check": a_check(unconsumed_since=NOW)}, NOW + 30 * SECOND),
        ({"queue": UNATTENDED, "check": a_check(unconsumed_since=ago(29))}, NOW + SECOND),
        ({"queue": UNATTENDED, "check": a_check(unconsumed_since=ago(1001))}, NOW + 30 * SECOND),
        ({"queue": UNATTENDED, "check": a_check(empty_since=ago(30))}, NOW + 30 * SECOND),
        ({"queue": None, "check": a_check(unconsumed_since=ago(29))}, NOW + SECOND),
        # Its message waited then, and may have been taken and acknowledged a moment ago.
        ({"queue": EMPTY, "check": a_check(unconsumed_since=ago(30))}, NOW + 30 * SECOND),
        # A message has come since then: who knows which.
        ({"queue": BUSY, "check": a_check(empty_since=ago(60))}, ago(1000) + 3600 * SECOND),
    ],
)
def test_scheduled_execution_waits_while_a_worker_may_run_it(
    worker: dict[str, Any], until: datetime | None
) -> None:
    decision = decide_stale(a_case(**worker))
    assert isinstance(decision, Wait), decision
    assert decision.until == until


@pytest.mark.parametrize("queue", [BUSY, UNMANAGED])
def test_live_worker_may_hold_a_message_only_for_so_long(queue: QueueObservation) -> None:
    assert isinstance(decide_stale(a_case(age_seconds=3599, queue=queue)), Wait)
    decision = decide_stale(a_case(age_seconds=3600, queue=queue))
    assert isinstance(decision, End)
    assert decision.limit_seconds == 3600


@pytest.mark.parametrize("row", [FRESH, NEVER, DEAD])
@pytest.mark.parametrize("queue", [BUSY, UNMANAGED, EMPTY, UNATTENDED, None])
def test_nothing_is_held_for_too_long_while_the_connection_is_young(
    row: Worker, queue: QueueObservation | None
) -> None:
    """Whether the worker is alive is unknown then, and its dead letter may be waiting."""
    decision = decide_stale(a_case(age_seconds=1e6, row=row, queue=queue, watched_seconds=89))
    assert isinstance(decision, Wait), decision
    assert decision.until == NOW + (30 if queue in (EMPTY, UNATTENDED, None) else 1) * SECOND


@pytest.mark.parametrize("queue", [BUSY, UNMANAGED, EMPTY, UNATTENDED, None])
def test_nothing_is_held_for_too_long_while_publishes_hang(queue: QueueObservation | None) -> None:
    check = a_check(unconsumed_since=ago(60), empty_since=ago(60))
    hangs = PublishView(confirmed_seconds_ago=1, slow_seconds_ago=0)
    assert isinstance(decide_stale(a_case(age_seconds=1e6, queue=queue, check=check, publishes=hangs)), Wait)
    slow = PublishView(confirmed_seconds_ago=1, slow_seconds_ago=329)
    assert isinstance(decide_stale(a_case(age_seconds=3929, queue=queue, check=check, publishes=slow)), Wait)
    assert isinstance(
        decide_stale(a_case(age_seconds=3930, queue=queue, check=check, publishes=slow)), End
    ), "a broker that is slow now and then does not keep it open without end"
    over = replace(slow, slow_seconds_ago=330)
    assert isinstance(decide_stale(a_case(age_seconds=3600, queue=queue, check=check, publishes=over)), End)
    unknown = PublishView()
    assert isinstance(
        decide_stale(a_case(age_seconds=1e6, queue=queue, check=check, publishes=unknown)), End
    ), "a replica that may not publish still decides in the end"


@pytest.mark.parametrize("row", [DEAD, GONE])
def test_unavailable_worker_is_evidence_by_itself(row: Worker | None) -> None:
    decision = decide_stale(a_case(row=row, queue=UNATTENDED, publishes=PublishView(slow_seconds_ago=0)))
    assert isinstance(decision, End), decision


ALIVE_OR_DEAD = ("lives", "alive", "dead", "gone", "died")


@pytest.mark.parametrize("row", [FRESH, NEVER, DEAD])
@pytest.mark.parametrize("queue", [BUSY, UNMANAGED, EMPTY, UNATTENDED, None])
@pytest.mark.parametrize("age_seconds", [1000, 10_000])
@pytest.mark.parametrize("watched_seconds", [1, 3600])
@pytest.mark.parametrize("status", ["scheduled", "running"])
def test_unknown_is_never_worded_as_alive_or_dead(
    row: Worker, queue: QueueObservation | None, age_seconds: float, watched_seconds: float, status: str
) -> None:
    decision = decide_stale(
        a_case(status, age_seconds, row=row, queue=queue, watched_seconds=watched_seconds)
    )
    words = decision.explanation.replace("whether worker 7 is alive is unknown", "")
    assert not any(word in words for word in ALIVE_OR_DEAD), decision.explanation


@pytest.mark.parametrize(
    ("row", "knowledge"),
    [
        (FRESH, "worker 7 sent its last heartbeat 2 s ago"),
        (NEVER, "whether worker 7 is alive is unknown: it has sent no heartbeat"),
    ],
)
def test_held_for_too_long_says_what_is_known_of_the_worker(row: Worker, knowledge: str) -> None:
    decision = decide_stale(a_case(age_seconds=3600, row=row))
    assert isinstance(decision, End)
    assert decision.explanation == f"it was not run within 3600 s; {knowledge}; its queue has 1 consumer(s)"


def test_evidence_says_so_when_the_intake_was_not_drained() -> None:
    decision = decide_stale(a_case(row=DEAD, queue=UNATTENDED, intake_undrained_seconds=400.04))
    assert isinstance(decision, End)
    assert decision.evidence["intake_undrained_seconds"] == 400.0
    assert "intake_undrained_seconds" not in decide_stale(a_case(row=DEAD, queue=UNATTENDED)).evidence  # type: ignore[union-attr]  # an End has it


def test_evidence_has_the_publishes_that_an_empty_queue_was_believed_by() -> None:
    decision = decide_stale(a_case(**LOST))
    assert isinstance(decision, End)
    assert decision.evidence["publishes"] == {"quick_seconds": 10_000, "confirmed_seconds_ago": 3}


@pytest.mark.parametrize("row", [FRESH, DEAD, NEVER, GONE])
def test_while_the_broker_cannot_be_asked_no_message_is_taken_for_dead(row: Worker | None) -> None:
    case = a_case(age_seconds=10_000, row=row, queue=None, is_queue_known=False)
    assert isinstance(decide_stale(case), Wait)


@pytest.mark.parametrize("row", [DEAD, GONE])
@pytest.mark.parametrize("queue", [BUSY, UNMANAGED, EMPTY])
@pytest.mark.parametrize(
    ("check", "until"),
    [
        (None, NOW + 30 * SECOND),
        (a_check(unavailable_since=ago(29)), NOW + SECOND),
        # The worker has reported since the first check.
        (a_check(unavailable_since=ago(60), last_heartbeat=ago(200)), NOW + 30 * SECOND),
    ],
)
def test_old_heartbeat_of_a_worker_that_still_consumes_needs_a_second_look(
    row: Worker | None, queue: QueueObservation, check: WorkerObservation | None, until: datetime
) -> None:
    """Its heartbeats may hang while it consumes, and runs what it has prefetched."""
    if check is not None and check.last_heartbeat is None and row is not None:
        check = replace(check, last_heartbeat=row.last_heartbeat)
    decision = decide_stale(a_case(row=row, queue=queue, check=check))
    assert isinstance(decision, Wait), decision
    assert decision.until == until


@pytest.mark.parametrize("row", [FRESH, DEAD, NEVER, GONE])
@pytest.mark.parametrize(
    "queue",
    [
        WITHOUT_TTL,
        replace(WITHOUT_TTL, unacked=None),
        replace(WITHOUT_TTL, ready=0, unacked=1, consumers=1),
        # What its consumer holds is unknown.
        replace(WITHOUT_TTL, ready=0, unacked=None, consumers=1),
    ],
)
def test_message_in_a_queue_without_ttl_is_waited_for_whatever_the_worker(
    row: Worker | None, queue: QueueObservation
) -> None:
    check = a_check(
        unavailable_since=ago(60),
        unconsumed_since=ago(60),
        empty_since=ago(60),
        last_heartbeat=row.last_heartbeat if row else None,
    )
    decision = decide_stale(a_case(age_seconds=3599, row=row, queue=queue, check=check))
    is_known = queue.holds_messages
    assert isinstance(decision, Wait), decision
    assert decision.until == (None if is_known else ago(3599) + 3600 * SECOND)
    assert decision.evidence["queue_has_no_ttl"] is True
    later = decide_stale(a_case(age_seconds=1e7, row=row, queue=queue, check=check))
    assert isinstance(later, Wait if is_known else End), later


def test_execution_whose_worker_was_deleted_is_decided_by_the_longest_ttl_known() -> None:
    deleted: dict[str, Any] = {"worker_id": None, "row": None, "queue": None, "is_queue_known": False}
    early = decide_stale(a_case(age_seconds=929, longest_ttl_ms=900_000, **deleted))
    assert isinstance(early, Wait), early
    assert early.until == ago(929) + 930 * SECOND
    decision = decide_stale(a_case(age_seconds=930, longest_ttl_ms=900_000, **deleted))
    assert isinstance(decision, End)
    assert decision.limit_seconds == decision.evidence["deadline_seconds"] == 930
    assert isinstance(decide_stale(a_case(age_seconds=330, longest_ttl_ms=1000, **deleted)), End), (
        "never below the settings"
    )


def test_execution_whose_worker_was_deleted_waits_while_no_ttl_is_known() -> None:
    """The settings say 300 s; the queue may have been declared with more. The wait has an end."""
    deleted: dict[str, Any] = {"worker_id": None, "row": None, "queue": None, "is_queue_known": False}
    early = decide_stale(a_case(age_seconds=3599, longest_ttl_ms=None, **deleted))
    assert isinstance(early, Wait), early
    assert early.until == ago(3599) + 3600 * SECOND
    assert isinstance(decide_stale(a_case(age_seconds=3600, longest_ttl_ms=None, **deleted)), End)


def test_queue_whose_ttl_is_unknown_is_given_the_longest_one_known() -> None:
    assert isinstance(
        decide_stale(a_case(age_seconds=929, longest_ttl_ms=900_000, row=DEAD, queue=UNATTENDED)), Wait
    )
    assert isinstance(
        decide_stale(a_case(age_seconds=930, longest_ttl_ms=900_000, row=DEAD, queue=UNATTENDED)), End
    )
    known = replace(UNATTENDED, ttl_ms=300_000)
    assert isinstance(
        decide_stale(a_case(age_seconds=330, longest_ttl_ms=900_000, row=DEAD, queue=known)), End
    )


def test_horizon_follows_the_time_to_live_that_the_queue_really_has() -> None:
    slow = replace(UNATTENDED, ttl_ms=900_000)
    early = decide_stale(a_case(age_seconds=929, row=DEAD, queue=slow))
    assert isinstance(early, Wait)
    assert early.until == ago(929) + 930 * SECOND
    assert isinstance(decide_stale(a_case(age_seconds=930, row=DEAD, queue=slow)), End)
    quick = replace(UNATTENDED, ttl_ms=1000)
    assert isinstance(decide_stale(a_case(age_seconds=329, row=DEAD, queue=quick)), Wait), (
        "never below the settings"
    )


@pytest.mark.parametrize(("row", "heartbeat"), [(DEAD, ago(91)), (GONE, None)])
def test_running_execution_is_abandoned_when_two_looks_find_its_worker_unavailable(
    row: Worker | None, heartbeat: datetime | None
) -> None:
    check = a_check(unavailable_since=ago(30), last_heartbeat=heartbeat)
    decision = decide_stale(a_case("running", row=row, check=check))
    assert isinstance(decision, End)
    assert decision.becomes is ExecutionStatus.ABANDONED


SILENT = {"unavailable_since": ago(60), "last_heartbeat": ago(91)}


@pytest.mark.parametrize(
    ("changes", "until"),
    [
        ({"row": FRESH}, None),
        ({"row": NEVER}, None),
        ({"row": a_row(90)}, None),
        ({"watched_seconds": 89}, None),
        ({"check": None}, NOW + 30 * SECOND),
        ({"check": a_check(last_heartbeat=ago(91))}, NOW + 30 * SECOND),
        ({"check": a_check(**SILENT | {"unavailable_since": ago(29)})}, NOW + SECOND),
        # It has reported since the first check.
        ({"check": a_check(**SILENT | {"last_heartbeat": ago(120)})}, NOW + 30 * SECOND),
        # Another session, perhaps the worker, wrote the row since the first check.
        ({"age_seconds": 10}, NOW + 20 * SECOND),
    ],
)
def test_running_execution_waits_in_every_doubt(changes: dict[str, Any], until: datetime | None) -> None:
    doubtful: dict[str, Any] = {"row": DEAD, "check": a_check(**SILENT)} | changes
    decision = decide_stale(a_case("running", **doubtful))
    assert isinstance(decision, Wait), decision
    assert decision.until == until


def test_canceling_execution_is_cancelled_beyond_its_limit() -> None:
    decision = decide_stale(a_case("canceling", 600))
    assert isinstance(decision, End)
    assert decision.becomes is ExecutionStatus.CANCELLED
    waits = decide_stale(a_case("canceling", 599))
    assert isinstance(waits, Wait)
    assert waits.until == ago(599) + 600 * SECOND


@pytest.mark.parametrize(
    ("status", "worker", "limit"),
    [
        ("scheduled", {"row": DEAD, "queue": UNATTENDED}, 330),
        ("scheduled", {"queue": BUSY}, 3600),
        ("scheduled", {"queue": EMPTY, "check": a_check(empty_since=ago(9000))}, 330),
        ("running", {"row": GONE, "check": a_check(unavailable_since=ago(9000))}, 30),
        ("canceling", {}, 600),
    ],
)
def test_when_the_clock_has_jumped_ahead_ages_count_from_there(
    status: str, worker: dict[str, Any], limit: float
) -> None:
    young = decide_stale(a_case(status, 10_000, steady_since=ago(limit - 1), **worker))
    assert isinstance(young, Wait)
    assert young.until == NOW + SECOND
    decision = decide_stale(a_case(status, 10_000, steady_since=ago(limit), **worker))
    assert isinstance(decision, End)
    assert decision.evidence["age_seconds"] == limit
    assert decision.evidence["clock_steady_since"] == ago(limit).isoformat()
    assert isinstance(decide_stale(a_case(status, 10_000, steady_since=ago(10_001), **worker)), End)


@pytest.mark.parametrize("status", ["running", "canceling"])
def test_parent_of_a_workflow_is_none_of_our_business_whatever_its_age(status: str) -> None:
    check = a_check(unavailable_since=ago(60), last_heartbeat=None)
    decision = decide_stale(a_case(status, 1e6, worker_id=None, row=None, check=check, queue=None))
    assert isinstance(decision, NotStale)


def test_results_have_the_fields_of_the_hosts_own_monitor_and_the_evidence() -> None:
    scheduled = a_case(row=DEAD, queue=replace(EMPTY, consumers=0))
    running = a_case("running", row=DEAD, check=a_check(**SILENT))
    failed, abandoned = decide_stale(scheduled), decide_stale(running)
    assert isinstance(failed, End)
    assert isinstance(abandoned, End)

    result = stale_result(scheduled.execution, failed, NOW)
    assert result.keys() == {
        "error",
        "failed_by",
        "timeout_seconds",
        "age_seconds",
        "original_status",
        "evidence",
    }
    assert (result["failed_by"], result["timeout_seconds"], result["age_seconds"]) == (
        "dlq_handler",
        330,
        1000,
    )
    assert result["evidence"] == {
        "attempt": ago(1000).isoformat(),
        "age_seconds": 1000,
        "heartbeat_age_seconds": 91,
        "unavailable_after_seconds": 90,
        "watched_seconds": 3600,
        "deadline_seconds": 330,
        "consumers": 0,
        "ready": 0,
        "unacked": 0,
        "queue_ttl_ms": 300_000,
    }
    result = stale_result(running.execution, abandoned, NOW)
    assert result.keys() == {
        "error",
        "abandoned_by",
        "original_status",
        "worker",
        "reconciled_at",
        "evidence",
    }
    assert (result["original_status"], result["worker"]) == ("running", 7)
    looks = {"found_unavailable": ago(60).isoformat(), "last": NOW.isoformat()}
    assert abandoned.evidence["checks"] == looks


def test_evidence_has_the_observations_of_an_empty_or_unattended_queue() -> None:
    decision = decide_stale(a_case(queue=EMPTY, check=a_check(empty_since=ago(30))))
    assert isinstance(decision, End)
    assert decision.evidence["checks"] == {"empty_since": ago(30).isoformat(), "last": NOW.isoformat()}
    decision = decide_stale(a_case(queue=UNATTENDED, check=a_check(unconsumed_since=ago(30))))
    assert isinstance(decision, End)
    assert decision.evidence["checks"] == {"unconsumed_since": ago(30).isoformat(), "last": NOW.isoformat()}


MOMENTS = st.sampled_from(
    [
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        NOW,
        *map(ago, (10, 330, 1000, 4000)),
    ]
) | st.datetimes(timezones=st.just(UTC))
AGES = st.none() | st.floats(min_value=-10, max_value=1e6)
cases = st.builds(
    StaleCase,
    execution=st.builds(
        an_execution,
        status=st.sampled_from(ExecutionStatus),
        updated=MOMENTS,
        worker_id=st.none() | st.just(7),
    ),
    worker=st.builds(
        WorkerView,
        row=st.none() | st.builds(a_row, st.floats(min_value=-10, max_value=1e6)) | st.just(NEVER),
        check=st.none()
        | st.builds(
            a_check,
            observed_at=MOMENTS,
            last_heartbeat=st.none() | MOMENTS,
            unavailable_since=st.none() | MOMENTS,
            empty_since=st.none() | MOMENTS,
            unconsumed_since=st.none() | MOMENTS,
        ),
        queue=st.none()
        | st.builds(
            QueueObservation,
            consumers=st.integers(0, 2),
            ready=st.integers(0, 2),
            unacked=st.none() | st.integers(0, 2),
            ttl_ms=st.none() | st.integers(1, 2**31 - 1),
            has_no_ttl=st.booleans(),
        ),
        is_queue_known=st.booleans(),
    ),
    now=st.just(NOW),
    watched_seconds=st.floats(min_value=0, max_value=1e6),
    limits=st.just(LIMITS),
    steady_since=st.none() | MOMENTS,
    longest_ttl_ms=st.none() | st.integers(0, 2**31 - 1),
    publishes=st.builds(
        PublishView,
        quick_seconds=st.sampled_from([0.0, 329.0, 330.0, 1e6]),
        confirmed_seconds_ago=st.none() | st.sampled_from([0.0, 60.0, 61.0]),
        slow_seconds_ago=st.none() | st.sampled_from([0.0, 329.0, 1e6]),
    ),
    intake_undrained_seconds=st.none() | st.floats(min_value=0, max_value=1e6),
)


@given(cases)
def test_nothing_terminal_unscheduled_or_without_a_worker_is_ever_decided(case: StaleCase) -> None:
    decision = decide_stale(case)
    status = case.execution.status
    if status not in TRANSITIONS or status in {ExecutionStatus.REQUESTED, ExecutionStatus.SCHEDULING}:
        assert isinstance(decision, NotStale)
    if status is not ExecutionStatus.SCHEDULED and case.execution.worker_id is None:
        assert isinstance(decision, NotStale)


@given(cases)
def test_whatever_ends_may_end_so_and_rests_on_what_the_rules_ask_for(case: StaleCase) -> None:
    decision = decide_stale(case)
    if not isinstance(decision, End):
        return
    assert decision.becomes in TRANSITIONS[case.execution.status]
    began = max(case.execution.updated, case.steady_since or case.execution.updated)
    age = (NOW - began).total_seconds()
    row = case.worker.row
    is_silent = row is None or ((row.heartbeat_age_seconds or 0) > 90 and case.watched_seconds >= 90)
    match decision.becomes:
        case ExecutionStatus.FAILED:
            # Without a worker the execution has no queue, whatever was seen of one.
            queue = case.worker.queue if case.execution.worker_id is not None else None
            assert age >= 330
            assert queue is None or queue.ttl_ms is None or age >= queue.ttl_ms / 1000 + 30
            assert case.worker.is_queue_known or case.execution.worker_id is None
            assert queue is None or not (queue.has_no_ttl and queue.holds_messages)
            if case.execution.worker_id is None:
                longest = case.longest_ttl_ms
                assert age >= (3600 if longest is None else longest / 1000 + 30)
            if case.execution.worker_id is not None and is_silent and queue is not None and queue.consumers:
                assert case.worker.check is not None
                assert case.worker.check.unavailable_since is not None
            if case.execution.worker_id is not None and not is_silent and age < 3600:
                check = case.worker.check
                assert check is not None
                is_unattended = queue is None or queue.consumers == 0
                first = check.unconsumed_since if is_unattended else check.empty_since
                assert first is not None
                assert case.execution.updated <= first <= ago(30)
                assert is_unattended or (queue and queue.ready + (queue.unacked or 0) == 0)
                assert case.publishes.cover(case.deadline_seconds)
            if case.execution.worker_id is not None and not is_silent:
                assert age < 3600 or case.watched_seconds >= 90 or case.publishes.cover(case.deadline_seconds)
        case ExecutionStatus.ABANDONED:
            assert is_silent
            assert age >= 30
        case _:
            assert age >= 600


@given(cases)
def test_every_decision_has_a_text_and_every_end_can_be_written(case: StaleCase) -> None:
    decision = decide_stale(case)
    assert decision.explanation
    if isinstance(decision, End):
        result = stale_result(case.execution, decision, NOW)
        assert ending(case.execution, decision.becomes, result, destination=COMPLETIONS, now=NOW).message.body
        assert decision.outcome == decision.becomes.value
