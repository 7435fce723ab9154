"""`dlq-handler workers`: who is there, what waits for whom. Reads only."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime

import typer

from dlq_handler import compose
from dlq_handler.domain.availability import standing_of
from dlq_handler.domain.worker import AvailabilityPolicy, QueueSight, RegisteredWorker, WorkerQueueNames
from dlq_handler.settings import Settings
from dlq_handler.store.examination import look_at_server
from dlq_handler.store.reconcile import resurrected_by_worker
from dlq_handler.store.workers import list_workers
from dlq_handler.surface.cli.config import load_or_exit
from dlq_handler.surface.cli.options import ConfigOption, Output, OutputOption
from dlq_handler.surface.cli.patience import wait_for
from dlq_handler.surface.cli.printing import print_json, print_table, print_warning

app = typer.Typer(no_args_is_help=True, help="Workers, their heartbeats and their queues.")

Sights = Mapping[int, QueueSight | None]

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
    "RESURRECTED",
]
_SPARE = (
    "RESURRECTED", "ROLE", "QUEUE", "CORDONED", "RUNNING", "SCHEDULED", "STATUS", "UNACKED", "READY", "CONSUMERS",
)  # fmt: skip


@app.command("list")
def list_all(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """List all workers, with what the broker sees of their queues and the executions they have.

    Availability is told by the age of the heartbeat alone: a command has not watched for as long as the running
    sidecar, so after an outage of the database it calls workers unavailable that could not report. A ? could not be
    asked for. Resurrected are executions that we had ended and the worker went on with.
    """
    settings = load_or_exit(config).settings
    workers, sights, resurrected, now = wait_for("asking the database and the broker", _look(settings))
    told = _Told(sights, resurrected, compose.availability_policy(settings), compose.names(settings))
    if output is Output.JSON:
        print_json([told.in_full(worker) for worker in workers])
    else:
        rows = [told.row(worker) for worker in workers]
        print_table(_COLUMNS, rows, empty="no workers", now=now, spare=_SPARE)


async def _look(
    settings: Settings,
) -> tuple[Sequence[RegisteredWorker], Sights, Mapping[int, int], datetime]:
    async with compose.open_database(settings) as database:
        workers, now = await list_workers(database), (await look_at_server(database)).now
        resurrected = await resurrected_by_worker(database)
    sight = compose.worker_sight(settings, compose.broker_address(settings), probes_ttl=False)
    try:
        sights = await sight.look([one.worker.id for one in workers if one.takes_dispatches])
    finally:
        await sight.close()
    if sight.broker_trouble is not None:
        print_warning(f"broker: {sight.broker_trouble}; nothing is known of the queues")
    elif sight.api_trouble is not None:
        print_warning(f"{sight.api_trouble}; what consumers hold (UNACKED) is not known")
    return workers, sights, resurrected, now


class _Told:
    def __init__(
        self,
        sights: Sights,
        resurrected: Mapping[int, int],
        policy: AvailabilityPolicy,
        names: WorkerQueueNames,
    ) -> None:
        self._sights, self._resurrected, self._policy, self._names = sights, resurrected, policy, names

    def in_full(self, one: RegisteredWorker) -> dict[str, object]:
        sight = self._sights.get(one.worker.id)
        # For ever: as if we had watched all the time, which the help text owns up to.
        standing = standing_of(one.worker, watched_seconds=math.inf, policy=self._policy)
        return {
            "id": one.worker.id,
            "name": one.name,
            "availability": standing.availability,
            "why": standing.why,
            "last_heartbeat": one.worker.last_heartbeat,
            "heartbeat_age_seconds": one.worker.heartbeat_age_seconds,
            "status": one.status,
            "cordoned": one.is_cordoned,
            "cordon_reason": one.cordon_reason,
            "role": one.role,
            "queue": self._names.queue(one.worker.id) if one.takes_dispatches else None,
            "queue_exists": sight is not None if one.worker.id in self._sights else None,
            "consumers": sight.consumers if sight else None,
            "ready": sight.ready if sight else None,
            "unacked": sight.unacked if sight else None,
            "scheduled": one.scheduled,
            "running": one.running,
            "resurrected": self._resurrected.get(one.worker.id, 0),
        }

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
            full["resurrected"],
        )
