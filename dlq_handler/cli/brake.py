"""`dlq-handler brake`: show the brake, and release it when the mass failure is real."""

from datetime import timedelta
from typing import Annotated

import typer

from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.open import actor, comment_or_ask, exit_if_refused, open_operations
from dlq_handler.cli.options import (
    CommentOption,
    ConfigOption,
    IfVersionOption,
    Output,
    OutputOption,
    read_duration,
)
from dlq_handler.cli.patience import wait_for
from dlq_handler.cli.printing import print_json, print_table, print_warning
from dlq_handler.dead_letters.listing import brake_version
from dlq_handler.operations.operations import Released
from dlq_handler.safety import brake_sql as store
from dlq_handler.safety.brake import BrakeMode, BrakeView, in_words, mode_of
from dlq_handler.safety.options import BrakeOptions
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database
from dlq_handler.text import in_units

app = typer.Typer(no_args_is_help=True)


@app.command()
def status(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """Show the brake. Exit 1: it is tripped."""
    settings = load_or_exit(config).settings
    view = wait_for("reading the brake", _read(settings))
    _print(view, settings.dlq_handler.brake, output)
    if mode_of(view, settings.dlq_handler.brake).is_tripped:
        raise typer.Exit(1)


@app.command()
def release(
    for_: Annotated[
        timedelta,
        typer.Option(
            "--for",
            parser=read_duration,
            metavar="90s|10m|2h",
            help="Duration without a limit, because these executions must end. 0s: restore the limit at once, "
            "also after an earlier release.",
        ),
    ] = "10m",  # type: ignore[assignment]  # typer parses defaults too
    comment: CommentOption = None,
    version: IfVersionOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Release the brake: end executions again, for a while without a limit. All replicas continue within 15 seconds. If
    the brake is not tripped, the limit is lifted all the same, with a warning.

    Recorded in the audit with user, time and comment (`audit list`). Exit 1: the brake has changed since you saw it,
    and nothing was done.
    """
    settings = load_or_exit(config).settings
    seen = wait_for("reading the brake", _read(settings))
    if for_:
        _warn_of_surprise(seen, settings.dlq_handler.brake, for_)
    # The current version: if the brake trips while the operator types the comment, the release is refused.
    version = version or brake_version(seen.state)
    explanation = comment_or_ask(comment)
    with exit_if_refused():
        released = wait_for(
            "releasing the brake", _release(settings, for_.total_seconds(), explanation, version)
        )
    _print(released.view, settings.dlq_handler.brake, output)


def _warn_of_surprise(seen: BrakeView, policy: BrakeOptions, for_: timedelta) -> None:
    """Warn before the prompt for the comment, where the operator can still cancel."""
    match mode_of(seen, policy):
        case BrakeMode.NORMAL:
            span = in_units(for_.total_seconds())
            print_warning(f"the brake is not tripped; this lifts the limit for {span}")
        case BrakeMode.RELEASED:
            print_warning(f"{in_words(seen, policy)}; this release replaces it")
        case BrakeMode.OFF:
            print_warning("no limit is set (max_decisions_per_minute is 0); there is nothing to release")
        case BrakeMode.HOLDING | BrakeMode.LIMITED:
            pass


async def _read(settings: Settings) -> BrakeView:
    async with open_database(settings) as database, database.transaction() as tx:
        return await store.read_brake(tx)


async def _release(settings: Settings, for_seconds: float, comment: str, version: str) -> Released:
    async with open_operations(settings) as (operating, _):
        return await operating.release_brake(
            actor(), comment=comment, for_seconds=for_seconds, version=version
        )


def _print(view: BrakeView, policy: BrakeOptions, output: Output) -> None:
    state = view.state
    shown: dict[str, object] = {
        "mode": mode_of(view, policy),
        "ended_last_minute": view.ended_last_minute,
        "max_decisions_per_minute": policy.max_decisions_per_minute,
        "tripped_at": state.tripped_at,
        "tripped_by": state.tripped_by,
        "explanation": state.explanation,
        "hold_until": state.hold_until,
        "released_at": state.released_at,
        "released_by": state.released_by,
        "released_until": state.released_until,
        "version": brake_version(state),
    }
    if output is Output.JSON:
        print_json(shown)
        return
    print_table(("FIELD", "VALUE"), list(shown.items()), now=view.now)
    sentence = in_words(view, policy)
    if sentence is not None:
        print(f"\n{sentence}")
