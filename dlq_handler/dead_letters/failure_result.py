"""The `result` that a failed execution gets: what Attune itself would write, and what the dead letter says. Pure."""

from datetime import datetime

from dlq_handler.dead_letters.decision import FAILED_BY, Fail
from dlq_handler.dead_letters.letter import RESCUED, DeadLetter
from dlq_handler.host.execution import Execution, ExecutionStatus

# `error` and `message` of the result.
_OTHER = "Dispatch was dead-lettered", "The dispatch to its worker was dead-lettered"
_WORDINGS = {
    "expired": (
        "Worker queue TTL expired",
        "No worker took the dispatch before it expired in the worker's queue",
    ),
    "rejected": ("Dispatch was rejected", "The dispatch was rejected by the consumer of the worker's queue"),
    "maxlen": (
        "Worker queue overflowed",
        "The dispatch was pushed out of the worker's queue by its length limit",
    ),
    "delivery_limit": (
        "Dispatch was redelivered too often",
        "The dispatch reached the delivery limit of the worker's queue",
    ),
    RESCUED: ("Worker unavailable", "The dispatch was drained from the queue of an unavailable worker"),
}

_RETIRED = "Worker unavailable", "The dispatch was sent to a retired worker"


def failure_result(
    letter: DeadLetter, execution: Execution, decision: Fail, now: datetime
) -> dict[str, object]:
    """The `result` of the failed execution. That of an expired dispatch has the fields that Attune itself writes."""
    error, message = _RETIRED if letter.is_from_retired_queue else _WORDINGS.get(letter.reason, _OTHER)
    died_at = letter.died_at
    result: dict[str, object] = {
        "error": error,
        "message": f"{message}{_about_worker(execution, decision)}.",
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
