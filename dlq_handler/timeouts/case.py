"""The facts about one execution that may be stale, and what follows from them without any decision. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dlq_handler.broker.publish_times import PublishView
from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.host.worker import AvailabilityPolicy, QueueObservation, Worker, is_unavailable
from dlq_handler.text import rounded
from dlq_handler.timeouts.options import MonitorOptions
from dlq_handler.workers.worker_observation import WorkerObservation
from dlq_handler.workers.worker_process import ProcessView

# For a worker to end a run at its limit and to write so.
RUN_GRACE_SECONDS = 60.0

WorkerQueues = Mapping[int, QueueObservation | None]
"""By worker. None: the worker has no queue. A worker that is missing is unknown."""

Processes = Mapping[int, ProcessView]
"""By worker; of workers that run an execution which the present process is not known to have begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleLimits:
    """The times that decide whether an execution is stale; those that are not settings of the monitor are derived."""

    monitor: MonitorOptions
    deadline_seconds: float
    """The deadline of a queue that has the TTL of the settings."""
    after_ttl_seconds: float
    """Time between the real TTL of a queue and the deadline."""
    availability: AvailabilityPolicy
    run_limit_seconds: float = 300.0
    """After this time the host itself ends a run that has no limit of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFacts:
    """What a scan knows about the workers of a batch of candidates."""

    queues: WorkerQueues
    checks: dict[int, WorkerObservation]
    """The checks of this scan so far. Grows as batches are committed: a scan checks each worker once."""
    longest_ttl_ms: int | None = None
    """The longest TTL of any worker queue observed."""
    intake_undrained_seconds: float | None = None
    """How long dead letters may have been waiting in the intake queue; None: they are not."""
    processes: Processes = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """What is known about the worker of an execution at this moment."""

    row: Worker | None = None
    """None: the worker has no row."""
    check: WorkerObservation | None = None
    queue: QueueObservation | None = None
    """None: the worker has no queue, if `is_queue_known`."""
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
    """Age of the database connection, unbroken: heartbeats older than it prove nothing."""
    limits: StaleLimits
    steady_since: datetime | None = None
    """Before this moment the database's clock jumped ahead; None: it did not."""
    longest_ttl_ms: int | None = None
    """The longest TTL of any worker queue observed; 0: they have none; None: unknown."""
    publishes: PublishView = field(default_factory=PublishView)
    """Publishes of dlq-handler itself: they show whether a message of Attune can hang on its way to the queue."""
    intake_undrained_seconds: float | None = None
    """How long dead letters may have been waiting in the intake queue; None: they are not."""
    own_run_limit_seconds: float | None = None
    """The limit of a workflow task that has one."""

    @property
    def run_limit_seconds(self) -> float:
        """At this age the host has ended the run, if the process that began it still runs."""
        own = self.own_run_limit_seconds
        return (self.limits.run_limit_seconds if own is None else own) + RUN_GRACE_SECONDS

    @property
    def age_seconds(self) -> float:
        return self.seconds_since(self.execution.updated)

    @property
    def deadline_seconds(self) -> float:
        """Before this age its message may still be in a queue."""
        queue = self.worker.queue
        if self.execution.worker_id is None or (queue is not None and not queue.is_ttl_known):
            # It is unknown which queue it was, or how long that queue keeps a message.
            ttl_ms = self.longest_ttl_ms
        else:
            ttl_ms = queue.ttl_ms if queue is not None else None
        if self.execution.worker_id is None and ttl_ms is None:
            # Nothing is known about any queue, as after a restart. The real TTL may be longer than the configured one.
            return max(self.limits.deadline_seconds, self.limits.monitor.held_timeout_seconds)
        if ttl_ms is None:
            return self.limits.deadline_seconds
        return max(self.limits.deadline_seconds, ttl_ms / 1000 + self.limits.after_ttl_seconds)

    @property
    def why_unavailable(self) -> str | None:
        """Why its worker is unavailable; None: the worker is not known to be unavailable."""
        row = self.worker.row
        if row is None:
            return f"worker {self.execution.worker_id} has no row"
        availability = self.limits.availability
        if not is_unavailable(row, link_age_seconds=self.watched_seconds, policy=availability):
            return None
        return f"worker {row.id} has sent no heartbeat for {row.heartbeat_age_seconds or 0.0:.0f} s"

    @property
    def are_heartbeats_believed(self) -> bool:
        """After a database outage every heartbeat appears old, or is from a worker that has stopped since."""
        return self.watched_seconds >= self.limits.availability.unavailable_after_seconds

    @property
    def when_heartbeats_are_believed(self) -> datetime | None:
        missing = self.limits.availability.unavailable_after_seconds - self.watched_seconds
        return later(self.now, max(0.0, missing))

    @property
    def heartbeat_knowledge(self) -> str:
        """What is known about a worker that has a row, in words."""
        row, worker_id = self.worker.row, self.execution.worker_id
        unknown = f"whether worker {worker_id} is alive is unknown"
        if not self.are_heartbeats_believed:
            limit = self.limits.availability.unavailable_after_seconds
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
        """The time at which `seconds_since(moment)` reaches `seconds`."""
        return later(self._counted_from(moment), seconds)

    def _counted_from(self, moment: datetime) -> datetime:
        """Across a jump of the clock the time that has passed is unknown: only the time after it counts."""
        return moment if self.steady_since is None else max(moment, self.steady_since)

    def when_publishes_cover(self, seconds: float) -> datetime | None:
        """None: it depends on publishes that are not confirmed."""
        missing = self.publishes.seconds_until_cover(seconds)
        return None if missing is None else later(self.now, missing)

    def evidence(self) -> dict[str, object]:
        """As JSON, to check the decision afterwards.

        Without what the columns of the record say: every field is an entry in the host's index on results.
        """
        row, queue = self.worker.row, self.worker.queue
        evidence: dict[str, object] = {
            "attempt": self.execution.updated.isoformat(),
            "age_seconds": round(self.age_seconds, 1),
            "heartbeat_age_seconds": rounded(row.heartbeat_age_seconds) if row else None,
            "unavailable_after_seconds": self.limits.availability.unavailable_after_seconds,
            "watched_seconds": round(self.watched_seconds, 1),
        }
        if self.steady_since is not None:
            evidence["clock_steady_since"] = self.steady_since.isoformat()
        if self.execution.status is ExecutionStatus.SCHEDULED:
            evidence["deadline_seconds"] = self.deadline_seconds
            if self.execution.worker_id is not None and self.why_unavailable is None:
                evidence["publishes"] = self.publishes.evidence()
        if self.intake_undrained_seconds is not None:
            evidence["intake_undrained_seconds"] = round(self.intake_undrained_seconds, 1)
        if queue is not None:
            evidence |= {"consumers": queue.consumers, "ready": queue.ready, "unacked": queue.unacked}
            evidence["queue_ttl_ms"] = queue.ttl_ms
            if queue.has_no_ttl:
                evidence["queue_has_no_ttl"] = True
        if self.execution.status is ExecutionStatus.RUNNING and self.worker.process is not None:
            evidence |= self._process_evidence(self.worker.process)
        checks = self._checks()
        if checks:
            evidence["checks"] = checks
        return evidence

    def _process_evidence(self, process: ProcessView) -> dict[str, object]:
        seen: dict[str, object] = {"run_limit_seconds": self.run_limit_seconds}
        known = process.known
        seen["consumer_connection"] = known.connection if process.is_found else None
        moments = {
            "connection_absent_at": known.absent_at,
            "connection_seen_at": known.found_at,
            "connection_unfound_since": known.missing_since,
        }
        return seen | {name: moment.isoformat() for name, moment in moments.items() if moment is not None}

    def _checks(self) -> dict[str, str]:
        """The time of the last check, and of the first one with the same result."""
        check = self.worker.check
        if check is None:
            return {}
        if self.execution.status is ExecutionStatus.RUNNING and check.unavailable_since is not None:
            return {
                "found_unavailable": check.unavailable_since.isoformat(),
                "last": self.now.isoformat(),
            }
        if self.execution.status is ExecutionStatus.SCHEDULED:
            firsts = {
                "found_unavailable": check.unavailable_since,
                "unconsumed_since": check.unconsumed_since,
                "empty_since": check.empty_since,
            }
            seen = {name: first.isoformat() for name, first in firsts.items() if first is not None}
            return {**seen, "last": check.observed_at.isoformat()} if seen else {}
        return {}


def later(moment: datetime, seconds: float) -> datetime | None:
    """None beyond the last moment that a datetime can hold: PostgreSQL has later ones, and infinity."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return None
