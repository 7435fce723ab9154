"""`dlq-handler workers`: list workers and their queues. Read-only."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import typer

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.open import observe_worker_queues
from dlq_handler.cli.options import ConfigOption, Output, OutputOption
from dlq_handler.cli.patience import wait_for
from dlq_handler.cli.printing import print_json, print_table, print_warning
from dlq_handler.database.lease_sql import read_server
from dlq_handler.diagnosis.check_services import ServiceFinding, finding_of
from dlq_handler.diagnosis.view import ObservedWorker
from dlq_handler.host.worker import (
    AvailabilityPolicy,
    QueueObservation,
    RegisteredWorker,
    WorkerQueueNames,
    is_on_time,
)
from dlq_handler.host.workers_sql import list_workers
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database
from dlq_handler.settings.servers import broker_of
from dlq_handler.timeouts.decisions_sql import count_reverted_by_worker
from dlq_handler.workers.availability import standing_of
from dlq_handler.workers.service_observation import ServiceObservations
from dlq_handler.workers.service_observations_sql import read_eventful

app = typer.Typer(no_args_is_help=True)

_Queues = Mapping[int, QueueObservation | None]

_UNKNOWN = "?"
_COLUMNS = [
    "ID",
    "NAME",
    "AVAILABILITY",
    "HEARTBEAT",
    "STATUS",
    "CORDONED",
    "ROLE",
    "QUEUE",
    "CONSUMERS",
    "READY",
    "UNACKED",
    "SCHEDULED",
    "RUNNING",
    "REVERTED_BY_WORKER",
    "RESTART",
]
_OPTIONAL_COLUMNS = (
    "REVERTED_BY_WORKER", "ROLE", "QUEUE", "CORDONED", "RUNNING", "SCHEDULED", "STATUS", "UNACKED", "READY",
    "CONSUMERS",
)  # fmt: skip

_RESTARTS = {
    ServiceFinding.WORKER_WITHOUT_CONSUMER: "yes: not consuming",
    ServiceFinding.WORKER_INACTIVE: "yes: inactive",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """All workers, from the database and the broker."""

    workers: Sequence[RegisteredWorker]
    queues: _Queues
    reverted_by_worker: Mapping[int, int]
    services: ServiceObservations
    now: datetime


@app.command("list")
def list_all(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """List all workers with their queues and executions.

    Availability depends on the age of the heartbeat alone. So after an outage of the database this command, unlike a
    replica, shows workers as unavailable that could not report. A ? is unknown. REVERTED_BY_WORKER counts executions
    that dlq-handler ended and the worker continued. RESTART is yes for a worker that sends heartbeats and gets no work
    until you restart it. It is known only if a replica ran within the last minute.
    """
    settings = load_or_exit(config).settings
    found = wait_for("asking the database and the broker", _read(settings))
    shown = _WorkerTable(found, settings.availability, settings.worker_queues)
    if output is Output.JSON:
        print_json([shown.in_full(worker) for worker in found.workers])
    else:
        rows = [shown.row(worker) for worker in found.workers]
        print_table(_COLUMNS, rows, empty="no workers", now=found.now, optional=_OPTIONAL_COLUMNS)


async def _read(settings: Settings) -> _Found:
    async with open_database(settings) as database:
        workers, now = await list_workers(database), (await read_server(database)).now
        reverted_by_worker = await count_reverted_by_worker(database)
        services = await read_eventful(database)
    async with AdminConnection(broker_of(settings)) as admin:
        observer = observe_worker_queues(settings, admin, probes_ttl=False)
        queues = await observer.observe([one.worker.id for one in workers if one.takes_dispatches])
    if observer.broker_error is not None:
        print_warning(f"broker: {observer.broker_error}; the state of the queues is unknown")
    elif observer.api_error is not None:
        print_warning(f"{observer.api_error}; the number of unacknowledged messages (UNACKED) is unknown")
    return _Found(
        workers=workers, queues=queues, reverted_by_worker=reverted_by_worker, services=services, now=now
    )


class _WorkerTable:
    def __init__(self, found: _Found, policy: AvailabilityPolicy, names: WorkerQueueNames) -> None:
        self._queues, self._reverted_by_worker, self._policy, self._names = (
            found.queues,
            found.reverted_by_worker,
            policy,
            names,
        )
        self._has_services = found.services.are_current(found.now)
        self._services = found.services.by_queue if self._has_services else {}

    def in_full(self, one: RegisteredWorker) -> dict[str, object]:
        queue = self._queues.get(one.worker.id)
        # Infinite: as if the command had been connected all the time. The help text explains the consequence.
        standing = standing_of(one.worker, watched_seconds=math.inf, policy=self._policy)
        seen = ObservedWorker(
            registered=one,
            standing=standing,
            queue=queue,
            is_on_time=is_on_time(one.worker, policy=self._policy),
            observation=self._services.get(self._names.queue(one.worker.id)),
        )
        return {
            "id": one.worker.id,
            "name": one.name,
            "availability": standing.availability,
            "explanation": standing.explanation,
            "last_heartbeat": one.worker.last_heartbeat,
            "heartbeat_age_seconds": one.worker.heartbeat_age_seconds,
            "status": one.status,
            "cordoned": one.is_cordoned,
            "cordon_reason": one.cordon_reason,
            "role": one.role,
            "queue": self._names.queue(one.worker.id) if one.takes_dispatches else None,
            "queue_exists": queue is not None if one.worker.id in self._queues else None,
            "consumers": queue.consumers if queue else None,
            "ready": queue.ready if queue else None,
            "unacked": queue.unacked if queue else None,
            "scheduled": one.scheduled,
            "running": one.running,
            "reverted_by_worker": self._reverted_by_worker.get(one.worker.id, 0),
            "restart_reason": finding_of(seen),
        }

    def _restart(self, one: RegisteredWorker, reason: object) -> str | None:
        if isinstance(reason, ServiceFinding):
            return _RESTARTS[reason]
        if not one.takes_dispatches:
            return None
        return "no" if self._has_services and one.worker.id in self._queues else _UNKNOWN

    def row(self, one: RegisteredWorker) -> Sequence[object]:
        full = self.in_full(one)
        counts = [full["consumers"], full["ready"], full["unacked"]]
        if full["queue"] is not None and full["queue_exists"] is not False:
            counts = [_UNKNOWN if count is None else count for count in counts]
        reason = f": {one.cordon_reason}" if one.cordon_reason else ""
        return (
            one.worker.id,
            one.name,
            full["availability"],
            one.worker.last_heartbeat or "never",
            one.status,
            f"yes{reason}" if one.is_cordoned else "no",
            one.role,
            "missing" if full["queue_exists"] is False else full["queue"],
            *counts,
            one.scheduled,
            one.running,
            full["reverted_by_worker"],
            self._restart(one, full["restart_reason"]),
        )
