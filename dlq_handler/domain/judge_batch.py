"""Judge a batch of letters in delivery order, each seeing the effect of those before it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.domain.dead_letter import DeadLetter
from dlq_handler.domain.execution import Execution
from dlq_handler.domain.failure_result import failure_result
from dlq_handler.domain.judge_dead_letter import Circumstances, judge_dead_letter
from dlq_handler.domain.outgoing import Notice, failed_notice
from dlq_handler.domain.verdict import Fail, Verdict
from dlq_handler.domain.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A status change to be made: the row as it was read, what to write, what to announce."""

    execution: Execution
    result: dict[str, object]
    notice: Notice


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A letter with its verdict; `failure` is set exactly when the verdict is `Fail`."""

    letter: DeadLetter
    verdict: Verdict
    failure: Failure | None = None


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
        failure = None
        if isinstance(verdict, Fail) and execution is not None:
            result = failure_result(letter, execution, verdict, now)
            notice = failed_notice(execution, result, correlation_id=letter.correlation_id, now=now)
            failure = Failure(execution=execution, result=result, notice=notice)
            rows[execution.id] = execution.failed()
        rulings.append(Ruling(letter=letter, verdict=verdict, failure=failure))
    return rulings
