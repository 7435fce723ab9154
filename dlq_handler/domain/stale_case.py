"""The facts of one execution that may be stale, and what follows from them without any judgement. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from dlq_handler.domain.execution import Execution, ExecutionStatus
from dlq_handler.domain.worker import AvailabilityPolicy, QueueSight, Worker, is_unavailable
from dlq_handler.domain.worker_look import WorkerLook


@dataclass(frozen=True, slots=True, kw_only=True)
class StalePolicy:
    horizon_seconds: float
    """Of a queue whose TTL is what the settings say."""
    grace_seconds: float
    """Beyond the TTL that a queue really has."""
    confirm_after_seconds: float
    held_timeout_seconds: float
    canceling_timeout_seconds: float
    availability: AvailabilityPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """What is known of an execution's worker at this moment."""

    row: Worker | None = None
    """None: it has no row (any more)."""
    look: WorkerLook | None = None
    queue: QueueSight | None = None
    """None: it has no queue, if `is_queue_known`."""
    is_queue_known: bool = False
    """False: the broker could not be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleCase:
    execution: Execution
    worker: WorkerView
    """Of `execution.worker_id`."""
    now: datetime
    """The database's clock."""
    watched_seconds: float
    """How long our view of the heartbeats has been unbroken."""
    policy: StalePolicy

    @property
    def age_seconds(self) -> float:
        return (self.now - self.execution.updated).total_seconds()

    @property
    def horizon_seconds(self) -> float:
        queue = self.worker.queue
        if queue is None or queue.ttl_ms is None:
            return self.policy.horizon_seconds
        return max(self.policy.horizon_seconds, queue.ttl_ms / 1000 + self.policy.grace_seconds)

    @property
    def silence(self) -> str | None:
        """In which way its worker is unavailable; None when it is not known to be."""
        row = self.worker.row
        if row is None:
            return f"worker {self.execution.worker_id} has no row any more"
        availability = self.policy.availability
        if not is_unavailable(row, link_age_seconds=self.watched_seconds, policy=availability):
            return None
        return f"the last heartbeat of worker {row.id} is {row.heartbeat_age_seconds or 0.0:.0f} s old"

    def when_aged(self, seconds: float) -> datetime | None:
        return later(self.execution.updated, seconds)

    def evidence(self) -> dict[str, object]:
        """As JSON, for whoever asks afterwards whether the verdict was right."""
        row, look, queue = self.worker.row, self.worker.look, self.worker.queue
        seen: dict[str, object] = {
            "status": self.execution.status.value,
            "updated": self.execution.updated.isoformat(),
            "age_seconds": _rounded(self.age_seconds),
            "worker": self.execution.worker_id,
            "has_worker_row": row is not None,
            "heartbeat_age_seconds": _rounded(row.heartbeat_age_seconds) if row else None,
            "unavailable_after_seconds": self.policy.availability.unavailable_after_seconds,
            "watched_seconds": _rounded(self.watched_seconds),
        }
        if self.execution.status is ExecutionStatus.SCHEDULED:
            seen["horizon_seconds"] = self.horizon_seconds
            has_queue = queue is not None
            seen["has_queue"] = has_queue if self.worker.is_queue_known else None
        if queue is not None:
            seen |= {"consumers": queue.consumers, "ready": queue.ready, "unacked": queue.unacked}
            seen["queue_ttl_ms"] = queue.ttl_ms
        if look is not None:
            seen["looks"] = {
                "last_heartbeat": _iso(look.last_heartbeat),
                "unavailable_since": _iso(look.unavailable_since),
                "empty_since": _iso(look.empty_since),
                "looked_at": _iso(look.looked_at),
            }
        return seen


def later(moment: datetime, seconds: float) -> datetime | None:
    """None beyond the last moment that a datetime can hold: PostgreSQL knows later ones, and infinity."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
