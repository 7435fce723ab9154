"""`dlq-handler topology`: make what must exist, and tell whether dead letters would arrive."""

import asyncio

import typer

from dlq_handler import compose
from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.broker.topology import Applied, apply
from dlq_handler.settings import Settings
from dlq_handler.store.workers import worker_ids
from dlq_handler.surface.cli.config import load_or_exit
from dlq_handler.surface.cli.options import ConfigOption, Output, OutputOption
from dlq_handler.surface.cli.printing import print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Exchanges, queues and bindings on the way of a dead letter.")


@app.command("apply")
def apply_blueprint(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """Declare what is missing and bind every worker's key to the intake queue. What exists is left as it is."""
    report = asyncio.run(_apply(load_or_exit(config).settings))
    if output is Output.JSON:
        print_json(report)
        return
    rows = [(name, "was there") for name in report.found] + [(name, "made") for name in report.made]
    print_table(("NAME", "STATE"), rows)
    print(f"{len(report.bound)} keys bound")


async def _apply(settings: Settings) -> Applied:
    async with compose.open_database(settings) as database:
        workers = await worker_ids(database)
    async with AdminLink(compose.broker_address(settings)) as link:
        return await apply(link, compose.blueprint(settings), workers)
