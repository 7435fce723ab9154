"""Decide dead letters: one by its fields and rows, a batch in the order of delivery. Pure and total: odd input becomes
a `Keep` decision, never an exception.

`decide_dead_letter` has the rows of the decision table in docs/explanation/decision-table.md, in its order.
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import assert_never

from dlq_handler.dead_letters.decision import Decision, Fail, Keep, LeaveAlone, Outcome
from dlq_handler.dead_letters.failure_result import failure_result
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.host.messages import Destination, Ending, ending
from dlq_handler.host.names import DISPATCH_MESSAGE_TYPE
from dlq_handler.host.worker import AvailabilityPolicy, Worker, WorkerQueueNames, is_unavailable
from dlq_handler.text import rounded

# x-death times are whole seconds and the broker's clock is not the database's.
UNSTAMPED_TOLERANCE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a decision depends on besides the dead letter and the rows."""

    link_age_seconds: float
    availability: AvailabilityPolicy
    names: WorkerQueueNames
    unfamiliar: Mapping[int, str] = field(default_factory=dict)
    """Executions in a status that this version does not know, by id: a newer host brought it in."""


def decide_dead_letter(
    letter: DeadLetter,
    execution: Execution | None,
    workers: Mapping[int, Worker],
    circumstances: Circumstances,
) -> Decision:
    """`workers` holds the rows of `workers_in_question`; an id that is missing there has no row."""
    decision = _decide_by_table(letter, execution, workers, circumstances)
    if isinstance(decision, Fail) and letter.is_from_retired_queue:
        why_not = _why_retired_copy_proves_nothing(letter, workers, circumstances)
        return decision if why_not is None else LeaveAlone(Outcome.LEFT_TO_MONITOR, why_not)
    return decision


def _decide_by_table(
    letter: DeadLetter,
    execution: Execution | None,
    workers: Mapping[int, Worker],
    circumstances: Circumstances,
) -> Decision:
    if (undecided := _decide_without_execution(letter, circumstances.names)) is not None:
        return undecided
    if execution is None and (status := circumstances.unfamiliar.get(letter.execution_id or 0)) is not None:
        # It exists, and is never written over.
        return LeaveAlone(Outcome.LEFT_TO_MONITOR, f"in status {status!r}, which this version does not know")
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
            return LeaveAlone(Outcome.LEFT_TO_MONITOR, execution.status.value)
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


def _decide_without_execution(letter: DeadLetter, names: WorkerQueueNames) -> Keep | LeaveAlone | None:
    if letter.retired is not None and letter.retired.is_archive:
        # First: messages of a flow without a worker have a format of their own.
        return LeaveAlone(
            Outcome.ARCHIVED, "its queue was retired, and the contents of this queue are archived"
        )
    if letter.parse_error is not None:
        return Keep(Outcome.UNREADABLE, letter.parse_error)
    if letter.message_type != DISPATCH_MESSAGE_TYPE:
        return _no_dispatch(letter, f"message_type is {letter.message_type!r}, not a dispatch")
    if letter.execution_id is None:
        return Keep(Outcome.UNREADABLE, "no execution_id")
    if not is_worker_dispatch(letter, names):
        return _no_dispatch(letter, _why_no_dispatch(letter))
    return None


def _no_dispatch(letter: DeadLetter, explanation: str) -> Keep | LeaveAlone:
    if letter.retired is not None or letter.is_from_retired_queue:
        # Its receiver was retired on purpose, so it waits for no person.
        return LeaveAlone(Outcome.ARCHIVED, f"its queue was retired; {explanation}")
    return Keep(Outcome.UNRELATED, explanation)


def is_worker_dispatch(letter: DeadLetter, names: WorkerQueueNames) -> bool:
    """Requests to the scheduler have the same message_type; only these two marks distinguish a dispatch."""
    if letter.worker_id is not None:
        return True
    return letter.first_death_queue is not None and names.owner_of(letter.first_death_queue) is not None


def _why_no_dispatch(letter: DeadLetter) -> str:
    if letter.reason == "rejected":
        # With "unrelated" alone an operator would search for a wrong sender, and there is none.
        return "a request that the scheduler rejected, for lack of a worker for example; the sender is not at fault"
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


def workers_in_question(
    letter: DeadLetter, execution: Execution | None, names: WorkerQueueNames
) -> AbstractSet[int]:
    """The workers whose rows the decision about this dead letter needs."""
    if execution is None or execution.status.is_terminal:
        return frozenset()
    wanted = retired_workers(letter, names) if letter.is_from_retired_queue else set()
    if execution.status is ExecutionStatus.RUNNING:
        worker_id = worker_in_question(letter, execution, names)
        wanted |= set() if worker_id is None else {worker_id}
    return wanted


def retired_workers(letter: DeadLetter, names: WorkerQueueNames) -> set[int]:
    """The workers that a message from the retired queue was sent to: one, unless its key and its payload disagree."""
    ids = {letter.worker_id, names.owner_of_key(letter.routing_key)}
    return {worker_id for worker_id in ids if worker_id is not None}


def _why_retired_copy_proves_nothing(
    letter: DeadLetter, workers: Mapping[int, Worker], circumstances: Circumstances
) -> str | None:
    """None: the worker can no longer receive this dispatch.

    While a worker is retired its key is bound to its own queue and to the retired queue, so there may be a twin in the
    own queue. And a worker that returns may install environments for minutes before its first heartbeat and its first
    message: a queue that exists is reason enough to leave the execution alone.
    """
    ids = retired_workers(letter, circumstances.names)
    if not ids:
        return "from the retired queue, and it names no worker"
    who = " and ".join(f"worker {worker_id}" for worker_id in sorted(ids))
    has_own_queue = letter.retired.has_own_queue if letter.retired is not None else None
    if has_own_queue is None:
        return f"from the retired queue, and it is unknown whether {who} has a queue again"
    if has_own_queue:
        return f"from the retired queue, but {who} has a queue, which may hold the same dispatch"
    for worker_id in sorted(ids):
        worker = workers.get(worker_id)
        if worker is not None and not is_unavailable(
            worker, link_age_seconds=circumstances.link_age_seconds, policy=circumstances.availability
        ):
            return f"from the retired queue, but worker {worker_id} is not known to be unavailable"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterProposal:
    """The decision about a dead letter, what it would change, and its evidence."""

    letter: DeadLetter
    decision: Decision
    change: Ending | None = None
    evidence: Mapping[str, object] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.letter.key

    @property
    def execution_id(self) -> int | None:
        return self.letter.execution_id


def first_of_each(letters: Sequence[DeadLetter], known: Collection[str]) -> list[DeadLetter]:
    """Each dead letter once, in delivery order, without those whose key is known."""
    fresh: dict[str, DeadLetter] = {}
    for letter in letters:
        if letter.key not in known:
            fresh.setdefault(letter.key, letter)
    return list(fresh.values())


def decide_batch(
    letters: Sequence[DeadLetter],
    *,
    executions: Mapping[int, Execution],
    workers: Mapping[int, Worker],
    circumstances: Circumstances,
    destination: Destination,
    now: datetime,
) -> list[LetterProposal]:
    """Each decision sees the effect of those before it. `destination`: of the completion events."""
    rows = dict(executions)
    proposals = []
    for letter in letters:
        execution = rows.get(letter.execution_id) if letter.execution_id is not None else None
        decision = decide_dead_letter(letter, execution, workers, circumstances)
        change = _change(letter, execution, decision, destination, now)
        if change is not None:
            rows[change.execution.id] = change.execution.ended(change.becomes)
        evidence = _evidence(letter, execution, workers, circumstances)
        proposals.append(LetterProposal(letter=letter, decision=decision, change=change, evidence=evidence))
    return proposals


def _change(
    letter: DeadLetter,
    execution: Execution | None,
    decision: Decision,
    destination: Destination,
    now: datetime,
) -> Ending | None:
    match decision:
        case Fail():
            if execution is None:
                return None
            return ending(
                execution,
                ExecutionStatus.FAILED,
                failure_result(letter, execution, decision, now),
                destination=destination,
                now=now,
                correlation_id=letter.correlation_id,
            )
        case LeaveAlone() | Keep():
            return None
        case never:
            assert_never(never)


def executions_found(proposals: Sequence[LetterProposal]) -> list[tuple[int, bool]]:
    """The executions that were read for these dead letters, each with whether it exists."""
    return [
        (one.execution_id, exists)
        for one in proposals
        if one.execution_id is not None and (exists := one.decision.outcome.execution_exists) is not None
    ]


def _evidence(
    letter: DeadLetter,
    execution: Execution | None,
    workers: Mapping[int, Worker],
    circumstances: Circumstances,
) -> dict[str, object]:
    """Execution and worker as they were read. The columns of the dead letter say the rest."""
    if execution is None:
        return {}
    seen: dict[str, object] = {
        "status": execution.status.value,
        "updated": execution.updated.isoformat(),
        "worker": execution.worker_id,
    }
    if letter.drained_from is not None:
        seen["drained_from"] = {
            "worker": letter.drained_from.worker_id,
            "heartbeat_age_seconds": rounded(letter.drained_from.heartbeat_age_seconds),
            "other_consumers": letter.drained_from.other_consumers,
        }
    elif letter.is_from_retired_queue:
        seen["retired"] = {
            "has_own_queue": letter.retired.has_own_queue if letter.retired is not None else None,
            "heartbeat_age_seconds": {
                str(worker_id): rounded(workers[worker_id].heartbeat_age_seconds)
                for worker_id in sorted(retired_workers(letter, circumstances.names))
                if worker_id in workers
            },
        }
    elif letter.death is not None:
        seen["x_death"] = {"count": letter.death.count, "exchange": letter.death.exchange}
    if execution.status is ExecutionStatus.RUNNING:
        worker_id = worker_in_question(letter, execution, circumstances.names)
        worker = workers.get(worker_id) if worker_id is not None else None
        seen["worker_in_question"] = worker_id
        seen["heartbeat_age_seconds"] = rounded(worker.heartbeat_age_seconds) if worker else None
        seen["unavailable_after_seconds"] = circumstances.availability.unavailable_after_seconds
        seen["link_age_seconds"] = rounded(circumstances.link_age_seconds)
    return seen
