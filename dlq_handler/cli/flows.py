"""`dlq-handler flows`: start, stop and list flows, the queues that dlq-handler owns."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.flow_leader import Progress, flow_leader, follow
from dlq_handler.cli.open import actor, checked_comment, exit_if_refused
from dlq_handler.cli.options import (
    ConfigOption,
    IfVersionOption,
    OptionalCommentOption,
    Output,
    OutputOption,
)
from dlq_handler.cli.patience import ask_database, wait_for
from dlq_handler.cli.printing import print_error, print_json, print_table, print_warning
from dlq_handler.database.engine import Database
from dlq_handler.lifecycle import flows_sql
from dlq_handler.lifecycle.flow import Flow, FlowStatus, StopStep
from dlq_handler.lifecycle.flow_summary import STEP_TEXTS, summary_of
from dlq_handler.operations.flow_operations import FlowOperations, why_not_started
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database

app = typer.Typer(no_args_is_help=True)

FlowArgument = Annotated[str, typer.Argument(metavar="ID")]
NoWaitOption = Annotated[
    bool, typer.Option("--no-wait", help="Only record the wish: a replica acts on it. Do not wait.")
]

_COLUMNS = ("ID", "BLUEPRINT", "PARAMS", "STATUS", "STEP", "SINCE", "QUEUES", "LAST ERROR")


@app.callback()
def _flows() -> None:
    """Flows: queues that dlq-handler creates, stops and deletes together."""


def read_params(given: Sequence[str]) -> Mapping[str, str]:
    params: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{one!r} is not NAME=VALUE", param_hint="--param")
        if name in params:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint="--param")
        params[name] = value
    return params


def operations_of(settings: Settings, database: Database) -> FlowOperations:
    return FlowOperations(
        database,
        settings.dlq_handler.lifecycle,
        settings.flow_blueprints,
        names=settings.worker_queues,
        is_shadow=settings.is_shadow,
    )


@app.command()
def start(
    flow_id: FlowArgument,
    *,
    blueprint: Annotated[
        str, typer.Option(metavar="NAME", help="`worker`, or one of `dlq_handler.blueprints`.")
    ],
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Value of a parameter of the blueprint; repeat it for each."),
    ] = None,
    comment: OptionalCommentOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Create the queues of a flow, and bind them. Returns when all of them exist and are bound.

    The id must be free. A start that fails deletes what it created: exit 1, and stderr has the reason. A replica does
    the work; if none runs, the command takes the lease and does it itself.
    """
    settings, params, progress = load_or_exit(config).settings, read_params(param or ()), Progress()
    comment = checked_comment(comment)

    async def started() -> Flow | None:
        async with open_database(settings) as database:
            wish = await operations_of(settings, database).start(
                actor(), flow_id, blueprint=blueprint, params=params, comment=comment
            )
            async with flow_leader(settings, database):
                return await follow(database, wish.flow, _has_started, progress)

    with exit_if_refused():
        flow = wait_for("creating the queues", started(), how_far=progress.__str__)
    if (why := why_not_started(flow)) is not None or flow is None:
        print_error(f"flow {flow_id!r} was not started: {why}")
        raise typer.Exit(1)
    _print_one(flow, output)


def _has_started(flow: Flow) -> bool:
    return flow.status is not FlowStatus.STARTING


@app.command()
def stop(
    flow_id: FlowArgument,
    *,
    no_wait: NoWaitOption = False,
    comment: OptionalCommentOption = None,
    version: IfVersionOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Stop a flow without losing a message: cordon its worker, wait until it is idle, route its keys to the retired
    queue, decide or archive what is left, delete its queues.

    Returns when the stop is complete, which takes as long as a consumer is connected. Ctrl-C does not end the stop: a
    replica continues it. If none runs, the command takes the lease and does the work itself. Exit 1: the stop was
    aborted because the worker has returned.
    """
    settings, progress = load_or_exit(config).settings, Progress()
    comment = checked_comment(comment)

    async def stopped() -> Flow | None:
        async with open_database(settings) as database:
            wish = await operations_of(settings, database).stop(
                actor(), flow_id, comment=comment, version=version
            )
            if no_wait:
                return wish.flow
            async with flow_leader(settings, database):
                return await follow(database, wish.flow, has_ended, progress)

    with exit_if_refused():
        flow = wait_for("stopping the flow", stopped(), how_far=progress.__str__)
    if flow is None:
        print_error(f"the record of flow {flow_id!r} is gone")
        raise typer.Exit(1)
    _print_one(flow, output)
    warn_of_end(flow, is_waited_for=not no_wait)


def has_ended(flow: Flow) -> bool:
    return flow.status is not FlowStatus.STOPPING


def warn_of_end(flow: Flow, *, is_waited_for: bool) -> None:
    """Exit 1 if a stop that was waited for did not complete."""
    if flow.leaked:
        print_warning(
            f"not deleted yet: {', '.join(flow.leaked)} ({flow.last_error}); a replica tries it again every minute"
        )
    if flow.archived_beyond_limit:
        print_warning(
            f"{flow.archived_beyond_limit} message(s) were counted and not recorded; the limit is "
            "dlq_handler.lifecycle.archive_limit"
        )
    if is_waited_for and (flow.status is FlowStatus.ACTIVE or flow.aborted_at is not None):
        print_error(flow.last_error or f"flow {flow.id!r} is {flow.status}")
        raise typer.Exit(1)


@app.command("list")
def list_all(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """List the flows, and the retirements of worker queues. Changes nothing.

    The table leaves out stopped flows of which nothing is left to do; JSON has them all.
    """
    flows, now = ask_database("reading the flows", load_or_exit(config).settings, flows_sql.list_flows)
    if output is Output.JSON:
        print_json([summary_of(flow) for flow in flows])
        return
    shown = [flow for flow in flows if flow.status.is_live or flow.leaked]
    print_table(
        _COLUMNS,
        [
            (
                flow.id,
                flow.blueprint,
                _params(flow),
                flow.status,
                flow.step,
                flow.since,
                len(flow.queues),
                flow.last_error,
            )
            for flow in shown
        ],
        empty="no flows",
        now=now,
        optional=("PARAMS", "QUEUES", "BLUEPRINT"),
    )
    if hidden := len(flows) - len(shown):
        print(f"{hidden} stopped flow(s) are not shown (`--output json` has them)")


@app.command()
def show(flow_id: FlowArgument, config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """Show one flow with its queues and the steps of its stop. Changes nothing."""

    async def read(database: Database) -> Flow | None:
        async with database.transaction() as tx:
            return await flows_sql.read_flow(tx, flow_id)

    flow, _ = ask_database("reading the flow", load_or_exit(config).settings, read)
    if flow is None:
        print_error(f"there is no flow {flow_id!r}; `dlq-handler flows list` shows the flows")
        raise typer.Exit(1)
    _print_one(flow, output)


def _print_one(flow: Flow, output: Output) -> None:
    if output is Output.JSON:
        print_json(summary_of(flow))
        return
    facts: list[tuple[str, object]] = [
        ("id", flow.id),
        ("kind", flow.kind),
        ("blueprint", f"{flow.blueprint} {_params(flow)}".strip()),
        ("status", flow.status),
        ("since", flow.since),
        ("version", flow.version),
        ("wanted by", flow.wanted_by),
        ("comment", flow.comment),
        ("queues", ", ".join(flow.queue_names)),
        ("leaked", ", ".join(flow.leaked) or None),
        ("archived", flow.archived or None),
        ("archived, only counted", flow.archived_beyond_limit or None),
        ("last error", flow.last_error),
    ]
    print_table(("FACT", "VALUE"), [fact for fact in facts if fact[1] is not None])
    if flow.status is FlowStatus.STOPPING or flow.step is not None:
        print_table(
            ("STEP", "STATE", "MEANING"),
            [(step, step_state(flow, step), STEP_TEXTS[step]) for step in StopStep],
        )


def step_state(flow: Flow, step: StopStep) -> str:
    if not flow.has_reached(step):
        return "to come"
    return "done" if flow.step is not step or flow.status is FlowStatus.STOPPED else "now"


def _params(flow: Flow) -> str:
    return " ".join(f"{name}={value}" for name, value in flow.params.items())
