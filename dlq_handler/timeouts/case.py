"""The facts of one execution that may be stale, and what follows from them without any decision. Pure."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dlq_handler.broker.publish.publishes import PublishView
from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.host.worker import AvailabilityPolicy, QueueObservation, Worker, is_unavailable
from dlq_handler.text import rounded
from dlq_handler.workers.connection import ProcessView
from dlq_handler.workers.look import WorkerLook

# For a worker to end a run at its limit and to write so.
RUN_GRACE_SECONDS = 60.0


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
    run_limit_seconds: float = 300.0
    """After which the host itself ends a run that has no limit of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """What is known of an execution's worker at this moment."""

    row: Worker | None = None
    """None: it has no row (any more)."""
    look: WorkerLook | None = None
    queue: QueueObservation | None = None
    """None: it has no queue, if `is_queue_known`."""
    is_queue_known: bool = False
    """False: the broker could not be asked."""
    process: ProcessView | None = None
    """None: a new connection of this host's workers is not a new process, so connections say nothing."""


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
    steady_since: datetime | None = None
    """Before this moment the database's clock jumped ahead; None: it did not."""
    longest_ttl_ms: int | None = None
    """The longest TTL of any worker queue that was seen; 0: they have none; None: unknown."""
    publishes: PublishView = field(default_factory=PublishView)
    """dlq-handler's own: whether the message of another program can have hung on its way to the queue."""
    intake_undrained_seconds: float | None = None
    """How long dead letters may have waited unread in the intake queue; None: they do not."""
    own_run_limit_seconds: float | None = None
    """Of a workflow task that has one."""

    @property
    def run_limit_seconds(self) -> float:
        """Beyond this age the host has ended the run, if the process that began it lives."""
        own = self.own_run_limit_seconds
        return (self.policy.run_limit_seconds if own is None else own) + RUN_GRACE_SECONDS

    @property
    def age_seconds(self) -> float:
        return self.seconds_since(self.execution.updated)

    @property
    def horizon_seconds(self) -> float:
        """The deadline: before this age its message may still be in a queue."""
        queue = self.worker.queue
        if self.execution.worker_id is None or (queue is not None and not queue.is_ttl_known):
            # Which queue it was, or how long that keeps a message, is unknown.
            ttl_ms = self.longest_ttl_ms
        else:
            ttl_ms = queue.ttl_ms if queue is not None else None
        if self.execution.worker_id is None and ttl_ms is None:
            # Nothing is known about any queue, as after a restart. Its own may outlast what the settings say.
            return max(self.policy.horizon_seconds, self.policy.held_timeout_seconds)
        if ttl_ms is None:
            return self.policy.horizon_seconds
        return max(self.policy.horizon_seconds, ttl_ms / 1000 + self.policy.grace_seconds)

    @property
    def silence(self) -> str | None:
        """In which way its worker is unavailable; None when it is not known to be."""
        row = self.worker.row
        if row is None:
            return f"worker {self.execution.worker_id} has no row any more"
        availability = self.policy.availability
        if not is_unavailable(row, link_age_seconds=self.watched_seconds, policy=availability):
            return None
        return f"worker {row.id} has sent no heartbeat for {row.heartbeat_age_seconds or 0.0:.0f} s"

    @property
    def are_heartbeats_believed(self) -> bool:
        """After the database was away every heartbeat looks old, or was written by a worker that is not there now."""
        return self.watched_seconds >= self.policy.availability.unavailable_after_seconds

    @property
    def when_heartbeats_are_believed(self) -> datetime | None:
        missing = self.policy.availability.unavailable_after_seconds - self.watched_seconds
        return later(self.now, max(0.0, missing))

    @property
    def heartbeat_knowledge(self) -> str:
        """What is known of a worker that has a row, in words."""
        row, worker_id = self.worker.row, self.execution.worker_id
        unknown = f"whether worker {worker_id} is alive is unknown"
        if not self.are_heartbeats_believed:
            limit = self.policy.availability.unavailable_after_seconds
            return (
                f"{unknown}: the database connection is {self.watched_seconds:.0f} s old, and heartbeats are "
                f"believed after {limit:g} s"
            )
        if row is None or row.heartbeat_age_seconds is None:
            return f"{unknown}: it has sent no heartbeat"
        return f"worker {worker_id} sent its last heartbeat {max(row.heartbeat_age_seconds, 0.0):.0f} s ago"

    def when_aged(self, seconds: float) -> datetime | None:
        return self.after(self.execution.updated, seconds)

    def seconds_since(self, moment: datetime) -> float:
        return (self.now - self._counted_from(moment)).total_seconds()

    def after(self, moment: datetime, seconds: float) -> datetime | None:
        """When `seconds_since(moment)` will be so many."""
        return later(self._counted_from(moment), seconds)

    def _counted_from(self, moment: datetime) -> datetime:
        """Across a jump of the clock nobody knows how much time has passed: only what came after it counts."""
        return moment if self.steady_since is None else max(moment, self.steady_since)

    def when_publishes_cover(self, seconds: float) -> datetime | None:
        """None: it depends on publishes that are not confirmed now."""
        missing = self.publishes.seconds_until_cover(seconds)
        return None if missing is None else later(self.now, missing)

    def evidence(self) -> dict[str, object]:
        """As JSON, for whoever asks afterwards whether the decision was right.

        Only what the record's own columns do not say, as every field is a line in the host's index on results.
        """
        row, queue = self.worker.row, self.worker.queue
        seen: dict[str, object] = {
            "attempt": self.execution.updated.isoformat(),
            "age_seconds": round(self.age_seconds, 1),
            "heartbeat_age_seconds": rounded(row.heartbeat_age_seconds) if row else None,
            "unavailable_after_seconds": self.policy.availability.unavailable_after_seconds,
            "watched_seconds": round(self.watched_seconds, 1),
        }
        if self.steady_since is not None:
            seen["clock_steady_since"] = self.steady_since.isoformat()
        if self.execution.status is ExecutionStatus.SCHEDULED:
            seen["horizon_seconds"] = self.horizon_seconds
            if self.execution.worker_id is not None and self.silence is None:
                seen["publishes"] = self.publishes.evidence()
        if self.intake_undrained_seconds is not None:
            seen["intake_undrained_seconds"] = round(self.intake_undrained_seconds, 1)
        if queue is not None:
            seen |= {"consumers": queue.consumers, "ready": queue.ready, "unacked": queue.unacked}
            seen["queue_ttl_ms"] = queue.ttl_ms
            if queue.has_no_ttl:
                seen["queue_has_no_ttl"] = True
        if self.execution.status is ExecutionStatus.RUNNING and self.worker.process is not None:
            seen |= self._process_evidence(self.worker.process)
        looks = self._looks()
        if looks:
            seen["looks"] = looks
        return seen

    def _process_evidence(self, process: ProcessView) -> dict[str, object]:
        seen: dict[str, object] = {"run_limit_seconds": self.run_limit_seconds}
        look = process.look
        seen["consumer_connection"] = look.connection if process.is_found else None
        moments = {
            "connection_absent_at": look.absent_at,
            "connection_seen_at": look.found_at,
            "connection_unfound_since": look.missing_since,
        }
        return seen | {name: moment.isoformat() for name, moment in moments.items() if moment is not None}

    def _looks(self) -> dict[str, str]:
        """When the last look was, and the first one that saw the same."""
        look = self.worker.look
        if look is None:
            return {}
        if self.execution.status is ExecutionStatus.RUNNING and look.unavailable_since is not None:
            return {
                "unavailable_since": look.unavailable_since.isoformat(),
                "last": self.now.isoformat(),
            }
        if self.execution.status is ExecutionStatus.SCHEDULED:
            firsts = {
                "unavailable_since": look.unavailable_since,
                "unconsumed_since": look.unconsumed_since,
                "empty_since": look.empty_since,
            }
            seen = {name: first.isoformat() for name, first in firsts.items() if first is not None}
            return {**seen, "last": look.observed_at.isoformat()} if seen else {}
        return {}


def later(moment: datetime, seconds: float) -> datetime | None:
    """None beyond the last moment that a datetime can hold: PostgreSQL knows later ones, and infinity."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return None
