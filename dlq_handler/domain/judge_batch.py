"""Judge a batch of letters in delivery order, each seeing the effect of those before it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dlq_handler.domain.dead_letter import DeadLetter
from dlq_handler.domain.ending import Ending, ending
from dlq_handler.domain.evidence import letter_evidence
from dlq_handler.domain.execution import Execution, ExecutionStatus
from dlq_handler.domain.failure_result import failure_result
from dlq_handler.domain.judge_dead_letter import Circumstances, judge_dead_letter
from dlq_handler.domain.verdict import Fail, Verdict
from dlq_handler.domain.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A letter with its verdict and what it rests on; `ending` is set exactly when the verdict is `Fail`."""

    letter: DeadLetter
    verdict: Verdict
    ending: Ending | None = None
    evidence: Mapping[str, object] = field(default_factory=dict)


def first_of_each(letters: Sequence[DeadLetter], known: Collection[str]) -> list[DeadLetter]:
    """Each dead letter once, in delivery order, without those whose key is known."""
    fresh: dict[str, DeadLetter] = {}
    for letter in letters:
        if letter.key not in known:
            fresh.setdefault(letter.key, letter)
    return list(fresh.values())


def judge_batch(
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
        verdict = judge_dead_letter(letter, execution, workers, circumstances)
        change = None
        if isinstance(verdict, Fail) and execution is not None:
            result = failure_result(letter, execution, verdict, now)
            change = ending(
                execution, ExecutionStatus.FAILED, result, now=now, correlation_id=letter.correlation_id
            )
            rows[execution.id] = execution.ended(ExecutionStatus.FAILED)
        evidence = letter_evidence(letter, execution, workers, circumstances)
        rulings.append(Ruling(letter=letter, verdict=verdict, ending=change, evidence=evidence))
    return rulings
