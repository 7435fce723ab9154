"""Decide one dead letter. Pure and total: odd input becomes a `Keep` decision, never an exception.

The rows of this function are the rows of the decision table in docs/explanation/decisions.md, in its order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from dlq_handler.dead_letters.decision import Decision, Fail, Keep, LeaveAlone, Outcome
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.host.names import DISPATCH_MESSAGE_TYPE
from dlq_handler.host.worker import AvailabilityPolicy, Worker, WorkerQueueNames, is_unavailable

# x-death times are whole seconds and the broker's clock is not the database's.
UNSTAMPED_TOLERANCE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What the decide may know besides the letter and the row."""

    link_age_seconds: float
    availability: AvailabilityPolicy
    names: WorkerQueueNames


def decide_dead_letter(
    letter: DeadLetter,
    execution: Execution | None,
    workers: Mapping[int, Worker],
    circumstances: Circumstances,
) -> Decision:
    """`workers` holds the rows of `worker_in_question`; an id that is missing there has no row."""
    if (kept := _decide_without_execution(letter, circumstances.names)) is not None:
        return kept
    if execution is None:
        return Keep(Outcome.UNKNOWN_EXECUTION, f"no execution {letter.execution_id}")
    if execution.status.is_terminal:
        return LeaveAlone(Outcome.ALREADY_TERMINAL, f"already {execution.status}")
    if None not in (letter.worker_id, execution.worker_id) and letter.worker_id != execution.worker_id:
        return LeaveAlone(
            Outcome.STALE_ATTEMPT,
            f"dispatched to worker {letter.worker_id}, now with worker {execution.worker_id}",
        )
    match execution.status:
        case ExecutionStatus.SCHEDULED:
            return _decide_scheduled(letter, execution)
        case ExecutionStatus.REQUESTED | ExecutionStatus.SCHEDULING:
            return LeaveAlone(Outcome.SUPERSEDED, f"back in {execution.status}: it will be dispatched again")
        case ExecutionStatus.RUNNING:
            return _decide_running(letter, execution, workers, circumstances)
        case ExecutionStatus.CANCELING:
            return LeaveAlone(Outcome.LEFT_TO_MONITOR, "canceling")
        case (
            ExecutionStatus.COMPLETED
            | ExecutionStatus.FAILED
            | ExecutionStatus.CANCELLED
            | ExecutionStatus.TIMEOUT
            | ExecutionStatus.ABANDONED
        ):
            return LeaveAlone(Outcome.ALREADY_TERMINAL, f"already {execution.status}")
        case _:
            assert_never(execution.status)


def needs_execution(letter: DeadLetter, names: WorkerQueueNames) -> bool:
    """False: it is decided by its own fields, and no row is locked for it."""
    return _decide_without_execution(letter, names) is None


def _decide_without_execution(letter: DeadLetter, names: WorkerQueueNames) -> Keep | None:
    if letter.parse_error is not None:
        return Keep(Outcome.UNREADABLE, letter.parse_error)
    if letter.message_type != DISPATCH_MESSAGE_TYPE:
        return Keep(Outcome.UNRELATED, f"message_type is {letter.message_type!r}, not a dispatch")
    if letter.execution_id is None:
        return Keep(Outcome.UNREADABLE, "no execution_id")
    if not is_worker_dispatch(letter, names):
        return Keep(Outcome.UNRELATED, _why_no_dispatch(letter))
    return None


def is_worker_dispatch(letter: DeadLetter, names: WorkerQueueNames) -> bool:
    """Requests to the scheduler have the same message_type; only these two marks distinguish a dispatch."""
    if letter.worker_id is not None:
        return True
    return letter.first_death_queue is not None and names.owner_of(letter.first_death_queue) is not None


def _why_no_dispatch(letter: DeadLetter) -> str:
    if letter.reason == "rejected":
        # With "unrelated" alone an operator would search for a wrong sender, and there is none.
        return "a request that the scheduler rejected, for lack of a worker for example; its sender made no mistake"
    return "no worker_id, and it did not die in a worker's queue"


def _decide_scheduled(letter: DeadLetter, execution: Execution) -> Decision:
    if letter.attempt_updated_at is not None:
        if letter.attempt_updated_at == execution.updated:
            return Fail("the dispatch for the current attempt was dead-lettered")
        return LeaveAlone(Outcome.STALE_ATTEMPT, "the dispatch for another attempt was dead-lettered")
    if letter.died_at is None:
        # Nothing says when it died, so nothing says that the current attempt is not younger.
        return LeaveAlone(
            Outcome.STALE_ATTEMPT,
            "the dead letter has neither a stamp nor a time of death: its attempt is unknown",
        )
    # A difference, not a sum: a forged time of death may be the last moment a datetime can hold.
    if execution.updated - letter.died_at <= UNSTAMPED_TOLERANCE:
        return Fail("its dispatch was dead-lettered after the execution was last updated (no stamp)")
    return LeaveAlone(
        Outcome.STALE_ATTEMPT, "the execution was updated after its dispatch was dead-lettered (no stamp)"
    )


def _decide_running(
    letter: DeadLetter, execution: Execution, workers: Mapping[int, Worker], circumstances: Circumstances
) -> Decision:
    worker_id = worker_in_question(letter, execution, circumstances.names)
    if worker_id is None:
        return LeaveAlone(Outcome.LEFT_TO_MONITOR, "running without a worker")
    worker = workers.get(worker_id)
    if worker is None:
        return Fail(f"running on worker {worker_id}, whose row was deleted")
    if execution.worker_id is None:
        return LeaveAlone(
            Outcome.LEFT_TO_MONITOR, f"running without a worker, while worker {worker_id} exists"
        )
    if is_unavailable(
        worker, link_age_seconds=circumstances.link_age_seconds, policy=circumstances.availability
    ):
        age = worker.heartbeat_age_seconds or 0.0
        return Fail(f"running on worker {worker.id}, whose last heartbeat is {age:.0f} s old")
    return LeaveAlone(Outcome.LEFT_TO_MONITOR, f"running on worker {worker.id}, not known to be unavailable")


def worker_in_question(letter: DeadLetter, execution: Execution, names: WorkerQueueNames) -> int | None:
    """Whose row decides over a running execution.

    Deleting a worker row sets the execution's worker to NULL, so the letter itself must say who had it.
    """
    if execution.worker_id is not None:
        return execution.worker_id
    if letter.worker_id is not None:
        return letter.worker_id
    return names.owner_of(letter.first_death_queue) if letter.first_death_queue else None
