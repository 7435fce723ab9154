"""The `result` of an execution that a dead letter failed: Attune's own fields for an expired one, else true words."""

from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from dlq_handler.dead_letters.decision import Fail
from dlq_handler.dead_letters.letter import RESCUED, DeadLetter
from dlq_handler.host.execution import Execution, ExecutionStatus

FAILED_BY = "dlq_handler"


@dataclass(frozen=True, slots=True)
class _Wording:
    error: str
    message: str


_OTHER = _Wording("Dispatch was dead-lettered", "The dispatch to its worker was dead-lettered")

_WORDINGS = MappingProxyType(
    {
        "expired": _Wording(
            "Worker queue TTL expired", "No worker took the dispatch before it expired in the worker's queue"
        ),
        "rejected": _Wording(
            "Dispatch was rejected", "The dispatch was rejected by the consumer of the worker's queue"
        ),
        "maxlen": _Wording(
            "Worker queue overflowed", "The dispatch was pushed out of the worker's queue by its length limit"
        ),
        "delivery_limit": _Wording(
            "Dispatch was redelivered too often",
            "The dispatch reached the delivery limit of the worker's queue",
        ),
        RESCUED: _Wording(
            "Worker unavailable", "The dispatch was drained from the queue of an unavailable worker"
        ),
    }
)


def failure_result(
    letter: DeadLetter, execution: Execution, decision: Fail, now: datetime
) -> dict[str, object]:
    wording = _WORDINGS.get(letter.reason, _OTHER)
    died_at = letter.died_at
    result: dict[str, object] = {
        "error": wording.error,
        "message": f"{wording.message}{_about_worker(execution, decision)}.",
        "failed_by": FAILED_BY,
        "reason": letter.reason,
        "queue": letter.queue,
        "worker_id": execution.worker_id if execution.worker_id is not None else letter.worker_id,
        "died_at": died_at.isoformat() if died_at else None,
        "attempt": letter.attempt_updated_at.isoformat() if letter.attempt_updated_at else None,
        "original_status": execution.status.value,
    }
    if letter.reason == "expired":
        result["expired_at"] = (died_at or now).isoformat()
    return result


def _about_worker(execution: Execution, decision: Fail) -> str:
    """Why a running execution was failed. Of a scheduled one the decision only says how its attempt was recognized,
    which means nothing to a user of Attune.
    """
    return f"; {decision.explanation}" if execution.status is ExecutionStatus.RUNNING else ""
