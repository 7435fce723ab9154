"""`dlq-handler top`: what is wrong, who is there and what died, anew every few seconds. Reads only.

Asks the servers directly, so it works while no sidecar runs, and with any of them down. Without a terminal: one look.
"""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from dlq_handler import compose
from dlq_handler.clock import monotonic_seconds
from dlq_handler.compose.view import open_lookout
from dlq_handler.domain.availability import Availability
from dlq_handler.domain.diagnosis import conclusion_of
from dlq_handler.domain.view import Unknown, WorkerSeen
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.services.diagnoser import diagnose_once
from dlq_handler.services.view import Lookout
from dlq_handler.settings import Settings
from dlq_handler.store import letter_groups
from dlq_handler.store.engine import Database
from dlq_handler.surface.cli.config import load_or_exit
from dlq_handler.surface.cli.letters_groups import look_at_groups, print_groups
from dlq_handler.surface.cli.options import ConfigOption, Output, OutputOption, read_duration
from dlq_handler.surface.cli.patience import wait_for
from dlq_handler.surface.cli.printing import print_json, print_table, print_warning
from dlq_handler.surface.cli.status import print_lines
from dlq_handler.surface.cli.top_screen import WORKER_COLUMNS, Sight, not_ok_first, screen, worker_row


def top(
    *,
    every: Annotated[
        timedelta,
        typer.Option(
            "--every", parser=read_duration, metavar="5s", help="How long to wait between two looks."
        ),
    ] = "5s",  # type: ignore[assignment]  # typer parses defaults too
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Watch diagnoses, workers and what died in the last hour. Ctrl-C ends it; in a pipe, or as JSON, it looks once."""
    if not every:
        # In a pipe too, where it would not matter: the same words mean the same everywhere.
        raise typer.BadParameter(
            "0s is no pause: the servers would be asked without end; wanted 1s or more", param_hint="--every"
        )
    settings = load_or_exit(config).settings
    if output is Output.TEXT and sys.stdout.isatty():
        with suppress(KeyboardInterrupt):
            # Without patience: its screen says that it asks, and how old what it shows is.
            asyncio.run(_watch(settings, every.total_seconds()))
        return
    sight = wait_for("asking the database and the broker", _look_once(settings))
    if output is Output.JSON:
        print_json(_in_full(sight))
    else:
        _print(sight)


async def _watch(settings: Settings, pause_seconds: float) -> None:
    environment = settings.dlq_handler.ui.environment
    seen: list[Sight] = []
    console = Console()
    async with compose.open_database(settings) as database, open_lookout(settings) as lookout:
        with Live(
            get_renderable=lambda: screen(
                seen[-1] if seen else None,
                environment=environment,
                now=monotonic_seconds(),
                width=console.width,  # asked for each time: windows change
            ),
            console=console,
            screen=True,
            refresh_per_second=2,
        ):
            while True:
                seen[:] = [await _look(lookout, database)]
                await asyncio.sleep(pause_seconds)


async def _look_once(settings: Settings) -> Sight:
    async with compose.open_database(settings) as database, open_lookout(settings) as lookout:
        return await _look(lookout, database)


async def _look(lookout: Lookout, database: Database) -> Sight:
    view = await lookout.look()
    diagnoses = await diagnose_once(view, database)
    try:
        groups = await look_at_groups(database, ttl_seconds=view.ttl_seconds)
        minutes = await letter_groups.letters_per_minute(database, since=groups.since, until=groups.until)
    except (Unavailable, Contended) as error:
        return Sight(view=view, diagnoses=diagnoses, groups=Unknown(str(error)), taken_at=monotonic_seconds())
    return Sight(view=view, diagnoses=diagnoses, groups=groups, minutes=minutes, taken_at=monotonic_seconds())


def _print(sight: Sight) -> None:
    print_lines(sight.diagnoses)
    print()
    if isinstance(sight.view.workers, Unknown):
        print_warning(f"workers: {sight.view.workers.why}")
    else:
        rows = [worker_row(one) for one in not_ok_first(sight.view.workers)]
        print_table(WORKER_COLUMNS, rows, empty="no workers", now=sight.view.at)
    print()
    if isinstance(sight.groups, Unknown):
        print_warning(f"letters: {sight.groups.why}")
    else:
        print_groups(sight.groups)


def _in_full(sight: Sight) -> dict[str, object]:
    groups, workers = sight.groups, sight.view.workers
    return {
        "conclusion": conclusion_of(sight.diagnoses),
        "at": sight.view.at,
        "diagnoses": sight.diagnoses,
        "workers": None if isinstance(workers, Unknown) else _counted(workers),
        "groups": None
        if isinstance(groups, Unknown)
        else [
            {"id": one.group.id, "title": groups.title(one), "letters": one.letters, "failed": one.failed}
            for one in groups.counts
        ],
        "letters_per_minute": sight.minutes,
    }


def _counted(workers: Sequence[WorkerSeen]) -> dict[str, int]:
    return {state.value: sum(one.standing.availability is state for one in workers) for state in Availability}
