"""`dlq-handler queues orphans` and `queues retire`: the queues of workers that are gone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.flow_leader import Progress, flow_leader, follow
from dlq_handler.cli.flows import has_ended, operations_of
from dlq_handler.cli.open import actor, checked_comment, exit_if_refused
from dlq_handler.cli.options import ConfigOption, OptionalCommentOption, Output, OutputOption
from dlq_handler.cli.patience import wait_for
from dlq_handler.cli.printing import print_error, print_json, print_table, print_warning
from dlq_handler.database.engine import Database
from dlq_handler.lifecycle.flow import Flow
from dlq_handler.lifecycle.flow_summary import summary_of
from dlq_handler.lifecycle.orphan_watch import OrphanList
from dlq_handler.lifecycle.orphans import WorkerQueues
from dlq_handler.operations.flow_operations import FlowOperations
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database
from dlq_handler.settings.orphans import orphan_finder_of
from dlq_handler.settings.servers import CALL_TIMEOUT_SECONDS, broker_of, management_api_of

# A person waits: the stop itself waits until its replica has been connected for long enough.
_TRUSTED = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class _OrphanRow:
    name: str
    worker_id: int
    is_orphan: bool
    ready: int | None
    consumers: int | None
    why: str
    why_not: Sequence[str]


def orphans(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """List the queues of workers, and whether they are orphans. Changes nothing.

    An orphan: the worker has no row, or has sent no heartbeat for `dlq_handler.lifecycle.orphans.after_seconds`; no
    queue of it has a consumer; each of its executions has ended; no flow has its queues. Whatever is unknown is a
    reason to keep a queue.
    """
    found = wait_for("asking the database and the broker", _find(load_or_exit(config).settings))
    for limit in found.limits:
        print_warning(limit)
    rows = [row for worker in found.workers for row in _rows(worker)]
    if output is Output.JSON:
        print_json(rows)
        return
    print_table(
        ("NAME", "WORKER", "ORPHAN", "READY", "EXPLANATION"),
        [
            (
                row.name,
                row.worker_id,
                "yes" if row.is_orphan else "no",
                "?" if row.ready is None else row.ready,
                row.why if row.is_orphan else "; ".join(row.why_not),
            )
            for row in rows
        ],
        empty="no queues of workers",
    )


def _rows(worker: WorkerQueues) -> Sequence[_OrphanRow]:
    return [
        _OrphanRow(
            name=queue.name,
            worker_id=worker.worker_id,
            is_orphan=worker.is_orphan,
            ready=queue.ready,
            consumers=queue.consumers,
            why=worker.why,
            why_not=worker.why_not,
        )
        for queue in worker.queues
    ]


async def _find(settings: Settings) -> OrphanList:
    async with open_database(settings) as database:
        return await _find_in(settings, database)


async def _find_in(settings: Settings, database: Database) -> OrphanList:
    api = management_api_of(settings, timeout_seconds=CALL_TIMEOUT_SECONDS)
    async with AdminConnection(broker_of(settings)) as admin:
        counter = QueueCounter(admin, api=api, asks_all_once=True)
        return await orphan_finder_of(settings, database, counter).find(link_age_seconds=_TRUSTED)


def retire(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="A queue of the worker: all queues of that worker are retired."
        ),
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="The queues of every worker that is gone.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Really retire them; without it nothing is done.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Only record the wish: a replica acts on it. Do not wait.")
    ] = False,
    comment: OptionalCommentOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete the queues of workers that are gone, without losing a message: their keys are routed to the retired queue,
    what is left is decided or archived, then the queues are deleted. The rows of the workers stay.

    Only orphans are retired (`queues orphans` shows which are); a worker that returns meanwhile keeps its queues.
    Ctrl-C does not end it: a replica continues. If none runs, the command takes the lease and does the work itself.
    """
    if (name is None) is not every:
        raise typer.BadParameter("give either the NAME of a queue, or --all", param_hint="NAME")
    settings, progress = load_or_exit(config).settings, _ProgressOfMany()
    comment = checked_comment(comment)
    if not yes:
        with exit_if_refused():
            chosen = wait_for("asking the database and the broker", _choose(settings, name))
        names = [queue for worker in chosen for queue in worker.queue_names]
        print_error(f"this would retire {', '.join(names) or 'no queue'}; add --yes to do it")
        raise typer.Exit(1)

    async def retired() -> Sequence[Flow]:
        async with open_database(settings) as database:
            operations = operations_of(settings, database)
            # Before the broker is asked: a refusal needs no orphans.
            operations.check_enabled()
            chosen = _chosen(await _find_in(settings, database), name)
            if not chosen:
                return ()
            return await _retire(settings, database, operations, chosen)

    async def _retire(
        settings: Settings, database: Database, operations: FlowOperations, chosen: Sequence[WorkerQueues]
    ) -> Sequence[Flow]:
        wishes = await operations.retire(actor(), [one.worker_id for one in chosen], comment=comment)
        for worker_id, why in wishes.refused.items():
            print_warning(f"the queues of worker {worker_id} are not retired: {why}")
        if no_wait or not wishes.flows:
            return wishes.flows
        async with flow_leader(settings, database):
            ended = []
            for wish in wishes.flows:
                progress.begin(wish, total=len(wishes.flows))
                ended.append(await follow(database, wish, has_ended, progress.flow) or wish)
            return ended

    with exit_if_refused():
        flows = wait_for("retiring the queues", retired(), how_far=progress.__str__)
    _report(flows, output, is_waited_for=not no_wait)


class _ProgressOfMany:
    def __init__(self) -> None:
        self.flow = Progress()
        self._begun, self._total = 0, 0

    def begin(self, wish: Flow, *, total: int) -> None:
        self.flow.flow = wish
        self._begun, self._total = self._begun + 1, total

    def __str__(self) -> str:
        return f"worker {self._begun} of {self._total}, {self.flow}" if self._total else "looking for orphans"


def _report(flows: Sequence[Flow], output: Output, *, is_waited_for: bool) -> None:
    if output is Output.JSON:
        print_json([summary_of(flow) for flow in flows])
    else:
        print_table(
            ("FLOW", "WORKER", "STATUS", "QUEUES", "ARCHIVED", "LAST ERROR"),
            [
                (
                    flow.id,
                    flow.worker_id,
                    flow.status,
                    ", ".join(flow.queue_names),
                    flow.archived + flow.archived_beyond_limit,
                    flow.last_error,
                )
                for flow in flows
            ],
            empty="no queue to retire",
        )
    incomplete = [flow for flow in flows if flow.leaked or flow.aborted_at is not None]
    if is_waited_for and incomplete:
        print_error(f"{len(incomplete)} of {len(flows)} not complete; LAST ERROR has the reasons")
        raise typer.Exit(1)


async def _choose(settings: Settings, name: str | None) -> Sequence[WorkerQueues]:
    return _chosen(await _find(settings), name)


def _chosen(found: OrphanList, name: str | None) -> Sequence[WorkerQueues]:
    for limit in found.limits:
        print_warning(limit)
    if name is None:
        return found.orphans
    owner = next((one for one in found.workers if name in one.queue_names), None)
    if owner is None:
        print_error(f"{name!r} is no queue of a worker; `dlq-handler queues orphans` lists those")
        raise typer.Exit(1)
    if not owner.is_orphan:
        print_error(f"{name!r} is no orphan: {'; '.join(owner.why_not)}")
        raise typer.Exit(1)
    return [owner]
