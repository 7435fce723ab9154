"""Decide a batch of dead letters in the order of their delivery, each seeing the effect of those before it. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import assert_never

from dlq_handler.dead_letters.decide import Circumstances, decide_dead_letter, worker_in_question
from dlq_handler.dead_letters.decision import Decision, Fail, Keep, LeaveAlone
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.result import failure_result
from dlq_handler.host.ending import Ending, ending
from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.host.messages import Destination
from dlq_handler.host.worker import Worker
from dlq_handler.text import rounded


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
    """`destination`: of the completion events."""
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
    if letter.rescue is not None:
        seen["rescue"] = {
            "worker": letter.rescue.worker_id,
            "heartbeat_age_seconds": rounded(letter.rescue.heartbeat_age_seconds),
            "other_consumers": letter.rescue.other_consumers,
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
