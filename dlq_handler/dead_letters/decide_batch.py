"""Decider a batch of letters in delivery order, each seeing the effect of those before it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dlq_handler.dead_letters.decide import Circumstances, decide_dead_letter
from dlq_handler.dead_letters.decision import Decision, Fail, Outcome
from dlq_handler.dead_letters.evidence import letter_evidence
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.result import failure_result
from dlq_handler.host.ending import Ending, ending
from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.host.worker import Worker
from dlq_handler.safety.brake import split_by_room


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A letter with its decision and what it rests on; `ending` is set exactly when the decision is `Fail`."""

    letter: DeadLetter
    decision: Decision
    ending: Ending | None = None
    evidence: Mapping[str, object] = field(default_factory=dict)


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
    now: datetime,
) -> list[Ruling]:
    rows = dict(executions)
    rulings = []
    for letter in letters:
        execution = rows.get(letter.execution_id) if letter.execution_id is not None else None
        decision = decide_dead_letter(letter, execution, workers, circumstances)
        change = None
        if isinstance(decision, Fail) and execution is not None:
            result = failure_result(letter, execution, decision, now)
            change = ending(
                execution, ExecutionStatus.FAILED, result, now=now, correlation_id=letter.correlation_id
            )
            rows[execution.id] = execution.ended(ExecutionStatus.FAILED)
        evidence = letter_evidence(letter, execution, workers, circumstances)
        rulings.append(Ruling(letter=letter, decision=decision, ending=change, evidence=evidence))
    return rulings


def executions_found(rulings: Sequence[Ruling]) -> list[tuple[int, bool]]:
    """The executions that were looked up for these dead letters, each with whether it exists.

    No execution is looked up for a dead letter that is unreadable or unrelated.
    """
    return [
        (ruling.letter.execution_id, ruling.decision.outcome is not Outcome.UNKNOWN_EXECUTION)
        for ruling in rulings
        if ruling.letter.execution_id is not None
        and ruling.decision.outcome not in (Outcome.UNREADABLE, Outcome.UNRELATED)
    ]


def split_rulings(rulings: Sequence[Ruling], room: int | None) -> tuple[list[Ruling], list[Ruling]]:
    """The rulings that the brake has room for, in order, and those that it leaves out. `room` None: no limit."""
    wanted = [(ruling.letter.execution_id, ruling.ending is not None) for ruling in rulings]
    fitting, left_out = split_by_room(wanted, room)
    return [rulings[one] for one in fitting], [rulings[one] for one in left_out]
