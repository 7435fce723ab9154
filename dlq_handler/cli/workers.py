"""`dlq-handler workers`: list workers and their queues. Read-only."""

import math
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime

import typer

from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.options import ConfigOption, Output, OutputOption
from dlq_handler.cli.patience import wait_for
from dlq_handler.cli.printing import print_json, print_table, print_warning
from dlq_handler.cli.status import collect_when_needed
from dlq_handler.diagnosis.check_services import ServiceFinding, finding_of
from dlq_handler.diagnosis.observe import observe
from dlq_handler.diagnosis.view import DatabaseFact, ObservedWorker, Unknown, View
from dlq_handler.errors import Unavailable
from dlq_handler.host.worker import RegisteredWorker, WorkerQueueNames
from dlq_handler.host.workers_sql import list_workers
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database
from dlq_handler.timeouts.decisions_sql import count_reverted_by_worker
from dlq_handler.workers.availability import standing_of

app = typer.Typer(no_args_is_help=True)

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
    workers: Sequence[ObservedWorker]
    """All, those included that take no dispatches."""
    reverted_by_worker: Mapping[int, int]
    has_observations: bool
    """A leader checked lately which workers have to be restarted."""
    at: datetime


@app.command("list")
def list_all(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """List all workers with their queues and executions.

    As the leading replica last observed them, a few seconds ago. Without a running replica the command asks the
    database and the broker itself. Availability then depends on the age of the heartbeat alone: after an outage of
    the database workers are shown as unavailable that could not report. A ? is unknown. REVERTED_BY_WORKER counts
    executions that dlq-handler ended and the worker continued. The queue of a worker that has been silent for a day and
    has no executions is not read. RESTART is yes for a worker that sends heartbeats and
    gets no work until you restart it. It is known only if a replica ran within the last minutes.
    """
    settings = load_or_exit(config).settings
    found = wait_for("asking the database and the broker", _read(settings))
    shown = _WorkerTable(found, settings.worker_queues)
    if output is Output.JSON:
        print_json([shown.in_full(worker) for worker in found.workers])
    else:
        rows = [shown.row(worker) for worker in found.workers]
        print_table(_COLUMNS, rows, empty="no workers", now=found.at, optional=_OPTIONAL_COLUMNS)


async def _read(settings: Settings) -> _Found:
    async with open_database(settings) as database, AsyncExitStack() as opened:
        collect = collect_when_needed(settings, opened)
        view = (await observe(database, collect, is_shadow=settings.is_shadow)).view
        if isinstance(view.workers, Unknown):
            error = view.database.error if isinstance(view.database, DatabaseFact) else None
            raise Unavailable("database", error or view.workers.explanation)
        observed = {one.registered.worker.id: one for one in view.workers}
        registered = await list_workers(database)
        reverted_by_worker = await count_reverted_by_worker(database)
    _warn(view, view.workers)
    observations = view.service_observations
    return _Found(
        workers=[observed.get(one.worker.id) or _unobserved(one, settings) for one in registered],
        reverted_by_worker=reverted_by_worker,
        has_observations=not isinstance(observations, Unknown) and observations.are_current(view.at),
        at=view.at,
    )


def _unobserved(one: RegisteredWorker, settings: Settings) -> ObservedWorker:
    """It takes no dispatches, so no view has it, or it registered a moment ago."""
    return ObservedWorker(
        registered=one,
        standing=standing_of(one.worker, watched_seconds=math.inf, policy=settings.availability),
        queue=Unknown("not observed yet") if one.takes_dispatches else None,
    )


def _warn(view: View, workers: Sequence[ObservedWorker]) -> None:
    if not view.has_broker:
        error = view.broker.explanation if isinstance(view.broker, Unknown) else view.broker.error
        print_warning(f"broker: {error}; the state of the queues is unknown")
    elif any(one.known_queue and one.known_queue.unacked is None for one in workers):
        print_warning(
            "the management API of the broker does not report it: the number of unacknowledged messages (UNACKED) "
            "is unknown"
        )


class _WorkerTable:
    def __init__(self, found: _Found, names: WorkerQueueNames) -> None:
        self._found, self._names = found, names

    def in_full(self, one: ObservedWorker) -> dict[str, object]:
        registered, worker, queue = one.registered, one.registered.worker, one.known_queue
        is_known = registered.takes_dispatches and not isinstance(one.queue, Unknown)
        return {
            "id": worker.id,
            "name": registered.name,
            "availability": one.standing.availability,
            "explanation": one.standing.explanation,
            "last_heartbeat": worker.last_heartbeat,
            "heartbeat_age_seconds": worker.heartbeat_age_seconds,
            "status": registered.status,
            "is_cordoned": registered.is_cordoned,
            "cordon_reason": registered.cordon_reason,
            "role": registered.role,
            "queue": self._names.queue(worker.id) if registered.takes_dispatches else None,
            "queue_exists": queue is not None if is_known else None,
            "consumers": queue.consumers if queue else None,
            "ready": queue.ready if queue else None,
            "unacked": queue.unacked if queue else None,
            "scheduled": registered.scheduled,
            "running": registered.running,
            "reverted_by_worker": self._found.reverted_by_worker.get(worker.id, 0),
            "restart_reason": finding_of(one),
        }

    def _restart(self, one: ObservedWorker) -> str | None:
        reason = finding_of(one)
        if reason is not None:
            return _RESTARTS[reason]
        if not one.registered.takes_dispatches:
            return None
        return "no" if self._found.has_observations and not isinstance(one.queue, Unknown) else _UNKNOWN

    def row(self, one: ObservedWorker) -> Sequence[object]:
        full, registered = self.in_full(one), one.registered
        counts = [full["consumers"], full["ready"], full["unacked"]]
        if full["queue"] is not None and full["queue_exists"] is not False:
            counts = [_UNKNOWN if count is None else count for count in counts]
        reason = f": {registered.cordon_reason}" if registered.cordon_reason else ""
        return (
            registered.worker.id,
            registered.name,
            full["availability"],
            registered.worker.last_heartbeat or "never",
            registered.status,
            f"yes{reason}" if registered.is_cordoned else "no",
            registered.role,
            "missing" if full["queue_exists"] is False else full["queue"],
            *counts,
            registered.scheduled,
            registered.running,
            full["reverted_by_worker"],
            self._restart(one),
        )
