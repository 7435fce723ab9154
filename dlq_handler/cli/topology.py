"""`dlq-handler topology`: plan and declare the topology, show it, and check whether dead letters arrive."""

import json
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError
from yarl import URL

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.options import vhost_of
from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.options import ConfigOption, Output, OutputOption
from dlq_handler.cli.patience import wait_for
from dlq_handler.cli.printing import jsonable, print_error, print_json, print_table, print_warning
from dlq_handler.errors import Unavailable
from dlq_handler.host.workers_sql import worker_ids
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database
from dlq_handler.settings.servers import broker_of, management_api_of
from dlq_handler.topology.apply import ApplyResult, WorkerQueueRefused, apply, declare_worker_queue
from dlq_handler.topology.check import CheckedQueue, CheckedTopology, Conclusion, QueueRole
from dlq_handler.topology.checker import TopologyReport, check_topology
from dlq_handler.topology.plan import PlannedRow, TopologyPlan, differences, list_topology, make_plan
from dlq_handler.topology.planner import read_topology
from dlq_handler.topology.routing import Answer

app = typer.Typer(no_args_is_help=True)

EXIT_CODES = {Conclusion.FINE: 0, Conclusion.BROKEN_ROUTE: 1, Conclusion.UNKNOWN: 2}
_MOST_ROWS = 100


@app.command("apply")
def apply_blueprint(
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            help="Apply exactly this plan of `topology plan`. Exit 1, and nothing is changed, if the broker has "
            "changed since.",
        ),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Declare what is missing and bind every worker's key to the intake queue. What exists stays as it is."""
    settings = load_or_exit(config).settings
    if plan is None:
        report = wait_for("asking the database and binding", _apply(settings))
    else:
        report = wait_for("asking the broker and binding", _apply_plan(settings, read_plan(plan)))
    keys = sorted(binding.routing_key for binding in report.bound)
    if output is Output.JSON:
        print_json(
            {
                "found": report.found,
                "made": report.made,
                "bound": keys,
                "dead_letter_exchange_type": report.dead_letter_exchange_type,
            }
        )
        return
    print_table(
        ("NAME", "STATE"),
        [(name, "found") for name in report.found] + [(name, "made") for name in report.made],
    )
    print(f"{len(keys)} key(s) bound")


async def _apply_plan(settings: Settings, planned: TopologyPlan) -> ApplyResult:
    async with AdminConnection(broker_of(settings)) as link:
        snapshot, limits = await read_topology(link, management_api_of(settings), settings.blueprint)
        now = make_plan(snapshot, settings.blueprint, planned.worker_ids, broker=_broker_name(settings))
        changed = differences(planned, now)
        if changed:
            for line in (*limits, *changed):
                print_error(line)
            print_error("Nothing was changed: run `dlq-handler topology plan` again.")
            raise typer.Exit(1)
        return await apply(link, settings.blueprint, planned.worker_ids)


def read_plan(path: Path) -> TopologyPlan:
    try:
        return TypeAdapter(TopologyPlan).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = (
            error.strerror if isinstance(error, OSError) else "it is no plan of `dlq-handler topology plan`"
        )
        raise typer.BadParameter(f"Cannot read {str(path)!r}: {reason}", param_hint="--plan") from error


@app.command()
def plan(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write the plan to this file, for `topology apply --plan`."
        ),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what `topology apply` would change on the broker. Changes nothing.

    Without RabbitMQ's management API bindings are unknown, so all of them are planned; binding again changes nothing.
    """
    planned, limits = wait_for("asking the database and the broker", _plan(load_or_exit(config).settings))
    for limit in limits:
        print_warning(limit)
    if out is not None:
        try:
            out.write_text(json.dumps(jsonable(planned), indent=2) + "\n")
        except OSError as error:
            raise typer.BadParameter(
                f"Cannot write {str(out)!r}: {error.strerror}", param_hint="--out"
            ) from error
    if output is Output.JSON:
        print_json(planned)
        return
    changes = planned.changes
    print_table(
        ("ACTION", "KIND", "NAME", "FOUND"),
        [(entry.action, entry.kind, entry.name, entry.found) for entry in changes[:_MOST_ROWS]],
        empty="nothing to change",
    )
    if len(changes) > _MOST_ROWS:
        print(f"… {len(changes) - _MOST_ROWS} more (`--output json` has all)")


async def _plan(settings: Settings) -> tuple[TopologyPlan, tuple[str, ...]]:
    async with open_database(settings) as database:
        workers = await worker_ids(database)
    async with AdminConnection(broker_of(settings)) as link:
        snapshot, limits = await read_topology(link, management_api_of(settings), settings.blueprint)
    return make_plan(snapshot, settings.blueprint, workers, broker=_broker_name(settings)), limits


def _broker_name(settings: Settings) -> str:
    """The nodes of a cluster hold the same topology: the first one stands for all."""
    url = URL(settings.broker_urls[0].get_secret_value())
    return f"{url.host}:{url.port or 5672}/{vhost_of(settings.broker_urls[0])}"


class ShowFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


@app.command()
def show(
    as_format: Annotated[
        ShowFormat, typer.Option("--format", help="`table` for people, `json` for programs.")
    ] = ShowFormat.TABLE,
    config: ConfigOption = None,
) -> None:
    """Show the exchanges, queues and bindings that must exist, with their owner and state. Changes nothing.

    Queues of workers are in `dlq-handler queues list`.
    """
    rows, limits = wait_for("asking the database and the broker", _show(load_or_exit(config).settings))
    for limit in limits:
        print_warning(limit)
    if as_format is ShowFormat.JSON:
        print_json(rows)
        return
    print_table(
        ("KIND", "NAME", "OWNER", "WANTED", "FOUND"),
        [(row.kind, row.name, row.owner, row.wanted, row.found) for row in rows[:_MOST_ROWS]],
        optional=("WANTED",),
    )
    if len(rows) > _MOST_ROWS:
        print(f"… {len(rows) - _MOST_ROWS} more (`--format json` has all)")


async def _show(settings: Settings) -> tuple[Sequence[PlannedRow], tuple[str, ...]]:
    workers, limits = await _workers_or_none(settings)
    async with AdminConnection(broker_of(settings)) as link:
        snapshot, unread = await read_topology(
            link, management_api_of(settings), settings.blueprint, with_services=True
        )
    return list_topology(snapshot, settings.blueprint, workers or ()), (*limits, *unread)


async def _workers_or_none(settings: Settings) -> tuple[frozenset[int] | None, tuple[str, ...]]:
    """The broker can be asked without the database, only less precisely, and the warning shows that."""
    try:
        async with open_database(settings) as database:
            return await worker_ids(database), ()
    except Unavailable as error:
        return None, (str(error),)


async def _apply(settings: Settings) -> ApplyResult:
    async with open_database(settings) as database:
        workers = await worker_ids(database)
    async with AdminConnection(broker_of(settings)) as link:
        return await apply(link, settings.blueprint, workers)


@app.command()
def check(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """Check for each queue whether its dead letters reach the intake queue, and show drift.

    Exit 1: an execution can hang (a broken route). Exit 2: unknown. Changes nothing.
    """
    report = wait_for("asking the database and the broker", _check(load_or_exit(config).settings))
    if output is Output.JSON:
        print_json(report)
    else:
        _print_report(report)
    raise typer.Exit(EXIT_CODES[report.topology.conclusion])


async def _check(settings: Settings) -> TopologyReport:
    workers, warnings = await _workers_or_none(settings)
    for warning in warnings:
        print_warning(warning)
    expected = replace(settings.expectation, worker_ids=workers)
    async with AdminConnection(broker_of(settings)) as link:
        return await check_topology(link, management_api_of(settings), expected)


def _print_report(report: TopologyReport) -> None:
    topology = report.topology
    for limit in report.limits:
        print_warning(limit)
    print(f"intake queue: {topology.intake_queue or 'none (dead lettering is off)'}")
    shown = _worth_showing(topology)
    print_table(
        ("QUEUE", "ROLE", "ARRIVES", "EXPLANATION"),
        [(checked.queue, checked.role, checked.arrives, _why(checked)) for checked in shown],
        empty="no queues to check",
    )
    if len(shown) < len(topology.queues):
        print(f"… {len(topology.queues) - len(shown)} more (`--output json` has all)")
    for finding in topology.findings:
        print(f"\n{finding.severity}: {finding.subject}")
        print(f"  is: {finding.is_now}\n  wanted: {finding.wanted}")
        if finding.way_out:
            print(f"  action: {finding.way_out}")
    print(f"\nconclusion: {topology.conclusion}")
    if topology.conclusion is Conclusion.BROKEN_ROUTE:
        print(
            "`dlq-handler run` binds what is missing at its start; `dlq-handler topology apply` does it now"
        )


def _worth_showing(topology: CheckedTopology) -> list[CheckedQueue]:
    """All, if they are few; otherwise the troubled ones first."""
    queues = list(topology.queues)
    if len(queues) > _MOST_ROWS:
        queues.sort(key=lambda one: (one.arrives is Answer.ARRIVES, one.role is not QueueRole.WORKER))
    return queues[:_MOST_ROWS]


def _why(checked: CheckedQueue) -> str:
    return " -> ".join(map(str, checked.path[1:])) if checked.arrives is Answer.ARRIVES else checked.sentence


@app.command("declare-worker-queue")
def declare(
    worker_id: Annotated[int, typer.Argument(metavar="ID", min=1)],
    yes: Annotated[
        bool, typer.Option("--yes", help="Really declare it; without it nothing is done.")
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Declare a worker's queue with the configured TTL and the dead-letter exchange, and bind it.

    Refuses when an existing worker queue has another TTL.
    """
    settings = load_or_exit(config).settings
    queue = settings.worker_queues.queue(worker_id)
    ttl_ms = settings.message_queue.rabbitmq.worker_queue_ttl_ms
    if not yes:
        print_error(f"this would declare queue {queue!r} with x-message-ttl={ttl_ms}; add --yes to do it")
        raise typer.Exit(1)
    try:
        made = wait_for("declaring the queue", _declare(settings, worker_id, ttl_ms))
    except WorkerQueueRefused as refused:
        print_error(str(refused))
        raise typer.Exit(1) from refused
    if output is Output.JSON:
        print_json({"queue": queue, "ttl_ms": ttl_ms, "made": made})
    else:
        print(f"queue {queue}: {'made' if made else 'was there already'}, x-message-ttl={ttl_ms}")


async def _declare(settings: Settings, worker_id: int, ttl_ms: int) -> bool:
    async with open_database(settings) as database:
        others = await worker_ids(database) - {worker_id}
    async with AdminConnection(broker_of(settings)) as link:
        return await declare_worker_queue(
            link, settings.blueprint, worker_id, ttl_ms=ttl_ms, compare_with=others
        )
