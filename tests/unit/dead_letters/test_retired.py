"""Messages of retired workers: which of them may fail an execution, and which are archived."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlq_handler.dead_letters.decide import (
    decide_batch,
    decide_dead_letter,
    retired_workers,
    workers_in_question,
)
from dlq_handler.dead_letters.decision import Decision, Outcome
from dlq_handler.dead_letters.group import Category, group_key_of
from dlq_handler.dead_letters.letter import DeadLetter, DrainedFrom, Retired, without_texts
from dlq_handler.dead_letters.record import Entry
from dlq_handler.dead_letters.rescued import as_checked, as_drained, as_retired
from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.host.worker import Worker, WorkerQueueNames
from dlq_handler.topology.blueprint import RETIRED_QUEUE
from tests.support.builders import (
    COMPLETIONS,
    NOON,
    a_canary,
    a_dead_letter,
    a_worker,
    an_execution,
    circumstances,
)

NAMES = WorkerQueueNames()
GONE = {7: a_worker(heartbeat_age_seconds=91)}
DRAINED_FROM = DrainedFrom(worker_id=7, heartbeat_age_seconds=600, other_consumers=0)


def a_copy(*, has_own_queue: bool | None = False, **changes: object) -> DeadLetter:
    """A message from the retired queue just before its decision. It was never dead-lettered."""
    message = a_dead_letter(**{"death": None, "first_death_queue": None} | changes)
    return as_checked(as_retired(message, NAMES), has_own_queue=has_own_queue, now=NOON)


def decided(
    letter: DeadLetter,
    execution: Execution | None = None,
    workers: dict[int, Worker] | None = None,
    *,
    link_age_seconds: float = 3600,
) -> Decision:
    rows = {} if workers is None else workers
    return decide_dead_letter(
        letter, execution or an_execution(), rows, circumstances(link_age_seconds=link_age_seconds)
    )


@pytest.mark.parametrize("workers", [{}, GONE])
def test_dispatch_to_a_worker_that_can_no_longer_receive_it_fails_its_execution(
    workers: dict[int, Worker],
) -> None:
    assert decided(a_copy(), workers=workers).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("has_own_queue", "workers", "link_age_seconds"),
    [
        (True, GONE, 3600),
        (True, {}, 3600),
        (None, GONE, 3600),
        (False, {7: a_worker(heartbeat_age_seconds=90)}, 3600),
        (False, {7: a_worker(heartbeat_age_seconds=None)}, 3600),
        (False, GONE, 89),
    ],
)
def test_dispatch_that_its_worker_may_still_receive_is_left_to_the_monitor(
    has_own_queue: bool | None, workers: dict[int, Worker], link_age_seconds: float
) -> None:
    decision = decided(
        a_copy(has_own_queue=has_own_queue), workers=workers, link_age_seconds=link_age_seconds
    )

    assert decision.outcome is Outcome.LEFT_TO_MONITOR


@pytest.mark.parametrize("has_own_queue", [True, False, None])
@pytest.mark.parametrize(
    ("execution", "outcome"),
    [
        (an_execution(status=ExecutionStatus.FAILED), Outcome.ALREADY_TERMINAL),
        (an_execution(status=ExecutionStatus.REQUESTED), Outcome.SUPERSEDED),
        (an_execution(updated=NOON + timedelta(seconds=1)), Outcome.STALE_ATTEMPT),
        (an_execution(worker_id=8), Outcome.STALE_ATTEMPT),
    ],
)
def test_other_rows_of_the_table_hold_for_it_whatever_its_worker_does(
    has_own_queue: bool | None, execution: Execution, outcome: Outcome
) -> None:
    assert decided(a_copy(has_own_queue=has_own_queue), execution, GONE).outcome is outcome


ages = st.none() | st.floats(min_value=-1e6, max_value=1e6)
copies = st.builds(
    a_copy,
    has_own_queue=st.none() | st.booleans(),
    worker_id=st.none() | st.sampled_from([7, 8]),
    routing_key=st.sampled_from(["execution.dispatch.worker.7", "execution.dispatch.worker.8", "other"]),
    attempt_updated_at=st.none() | st.just(NOON),
    first_death_queue=st.none() | st.sampled_from(["worker.7.executions", "other"]),
)
executions = st.builds(
    an_execution, status=st.sampled_from(ExecutionStatus), worker_id=st.none() | st.sampled_from([7, 8])
)
rows = st.dictionaries(st.sampled_from([7, 8]), st.builds(Worker, id=st.just(7), heartbeat_age_seconds=ages))


@given(copies, executions, rows, st.floats(min_value=0, max_value=1e6))
@example(a_copy(has_own_queue=True), an_execution(), {}, 3600.0)
@example(a_copy(worker_id=8), an_execution(worker_id=8), {7: a_worker()}, 3600.0)
def test_no_copy_from_the_retired_queue_fails_work_that_its_worker_may_still_receive(
    letter: DeadLetter, execution: Execution, workers: dict[int, Worker], link_age_seconds: float
) -> None:
    """The workers that its key and its payload name: in the queue of one of them there may be a twin."""
    decision = decided(letter, execution, workers, link_age_seconds=link_age_seconds)

    if decision.outcome is Outcome.FAILED:
        assert letter.retired == Retired(has_own_queue=False)
        named = retired_workers(letter, NAMES)
        assert named
        assert named <= workers_in_question(letter, execution, NAMES)
        for worker in (workers[one] for one in named if one in workers):
            assert worker.heartbeat_age_seconds is not None
            assert worker.heartbeat_age_seconds > 90
            assert link_age_seconds >= 90


def test_two_copies_of_one_message_end_as_one_failed_and_one_already_terminal() -> None:
    message = a_dead_letter(death=None, first_death_queue=None)
    drained = as_drained(message, DRAINED_FROM, queue="worker.7.executions", now=NOON, retired=Retired())
    copy = as_checked(as_retired(message, NAMES), has_own_queue=False, now=NOON)

    proposals = decide_batch(
        [drained, copy],
        executions={1: an_execution()},
        workers={},
        circumstances=circumstances(),
        destination=COMPLETIONS,
        now=NOON,
    )

    assert drained.key != copy.key
    assert [one.decision.outcome for one in proposals] == [Outcome.FAILED, Outcome.ALREADY_TERMINAL]
    assert [one.change is not None for one in proposals] == [True, False]


def test_same_message_from_the_retired_queue_has_the_same_key_whenever_it_is_checked() -> None:
    message = as_retired(a_dead_letter(death=None), NAMES)
    first = as_checked(message, has_own_queue=True, now=NOON)
    again = as_checked(message, has_own_queue=False, now=NOON + timedelta(hours=1))

    assert message.key == first.key == again.key
    assert message.key != a_dead_letter(death=None).key


def test_routing_key_names_the_worker_where_the_payload_does_not() -> None:
    letter = as_retired(a_dead_letter(worker_id=None, first_death_queue=None), NAMES)

    assert letter.worker_id == 7
    assert letter.queue == letter.first_death_queue == RETIRED_QUEUE


def test_result_of_the_execution_says_that_the_worker_was_retired() -> None:
    [proposal] = decide_batch(
        [a_copy()],
        executions={1: an_execution()},
        workers=GONE,
        circumstances=circumstances(),
        destination=COMPLETIONS,
        now=NOON,
    )

    assert proposal.change is not None
    assert proposal.change.result["error"] == "Worker unavailable"
    assert proposal.change.result["message"] == "The dispatch was sent to a retired worker."
    assert proposal.change.result["queue"] == RETIRED_QUEUE
    assert proposal.evidence["retired"] == {"has_own_queue": False, "heartbeat_age_seconds": {"7": 91}}


def test_record_of_a_copy_is_never_reprocessed_without_the_rule() -> None:
    """A record does not say whether the worker had a queue."""
    of_record = replace(a_copy(has_own_queue=False), retired=None)

    assert decided(of_record, workers=GONE).outcome is Outcome.LEFT_TO_MONITOR


def test_record_without_texts_keeps_the_name_of_the_retired_queue() -> None:
    letter = without_texts(a_copy(), NAMES)

    assert letter.is_from_retired_queue
    assert decided(letter, workers=GONE).outcome is Outcome.LEFT_TO_MONITOR
    assert without_texts(a_dead_letter(), NAMES).queue is None


@pytest.mark.parametrize(
    "letter",
    [
        a_copy(message_type="ExecutionCancelRequested", execution_id=None),
        a_copy(worker_id=None, routing_key="flow.other"),
        as_drained(
            a_dead_letter(message_type="PackRegistered", execution_id=None),
            DRAINED_FROM,
            queue="worker.7.executions",
            now=NOON,
            retired=Retired(),
        ),
        as_drained(
            a_dead_letter(), DRAINED_FROM, queue="worker.7.packs", now=NOON, retired=Retired(is_archive=True)
        ),
    ],
)
def test_what_is_no_dispatch_or_waited_in_a_queue_to_be_archived_is_archived(letter: DeadLetter) -> None:
    decision = decided(letter)

    assert decision.outcome is Outcome.ARCHIVED
    entry = Entry(letter=letter, outcome=decision.outcome, explanation=decision.explanation)
    assert group_key_of(entry).category is Category.ARCHIVED
    assert group_key_of(entry).detail == letter.message_type


def test_queue_of_an_unavailable_worker_that_is_not_retired_archives_nothing() -> None:
    letter = as_drained(
        a_dead_letter(message_type="PackRegistered"), DRAINED_FROM, queue="worker.7.executions", now=NOON
    )

    assert decided(letter).outcome is Outcome.UNRELATED


@pytest.mark.parametrize(
    ("retired", "outcome", "category"),
    [
        (Retired(), Outcome.UNREADABLE, Category.UNREADABLE),
        # Messages of a flow without a worker have a format of their own.
        (Retired(is_archive=True), Outcome.ARCHIVED, Category.ARCHIVED),
    ],
)
def test_unreadable_message_waits_for_a_person_unless_its_queue_is_archived(
    retired: Retired, outcome: Outcome, category: Category
) -> None:
    letter = replace(a_copy(parse_error="body is not JSON", message_type=None), retired=retired)
    decision = decided(letter)

    assert decision.outcome is outcome
    entry = Entry(letter=letter, outcome=decision.outcome, explanation=decision.explanation)
    assert group_key_of(entry).category is category


def test_message_from_the_retired_queue_is_no_canary() -> None:
    """A canary is acknowledged without a record, and any sender can write its marks."""
    assert a_canary().is_canary
    assert not as_retired(a_canary(), NAMES).is_canary


def test_archived_is_resolved_and_cannot_be_reprocessed() -> None:
    assert Outcome.ARCHIVED.is_resolved
    assert not Outcome.ARCHIVED.is_reprocessable
    assert Outcome.ARCHIVED.execution_exists is None
