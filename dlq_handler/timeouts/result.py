"""The `result` of an execution that the monitor ended: the fields of Attune's own monitor, and the evidence."""

from datetime import datetime

from dlq_handler.dead_letters.result import FAILED_BY
from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.timeouts.decision import End


def stale_result(execution: Execution, decision: End, now: datetime) -> dict[str, object]:
    if decision.becomes is ExecutionStatus.ABANDONED:
        return {
            "error": f"{decision.error}: {decision.explanation}",
            "abandoned_by": FAILED_BY,
            "original_status": execution.status.value,
            "worker": execution.worker_id,
            "reconciled_at": now.isoformat(),
            "evidence": dict(decision.evidence),
        }
    is_cancelled = decision.becomes is ExecutionStatus.CANCELLED
    return {
        "error": f"Execution timeout: {decision.explanation}",
        "cancelled_by" if is_cancelled else "failed_by": FAILED_BY,
        "timeout_seconds": int(decision.limit_seconds),
        "age_seconds": int((now - execution.updated).total_seconds()),
        "original_status": execution.status.value,
        "evidence": dict(decision.evidence),
    }
