"""`dlq-handler notify`: who is told of changes, be quiet for a while, and see whether a message arrives."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from dlq_handler import compose
from dlq_handler.compose import notify
from dlq_handler.compose.operating import open_operating
from dlq_handler.domain.operation import Mute
from dlq_handler.domain.state_version import mute_version
from dlq_handler.domain.webhook_message import rehearsal
from dlq_handler.services.webhook import WebhookFailed
from dlq_handler.settings import Settings
from dlq_handler.store import mute as store_mute
from dlq_handler.store import notified
from dlq_handler.store.notified import NotifiedLook
from dlq_handler.surface.cli.config import load_or_exit
from dlq_handler.surface.cli.operator import actor, operator, reason_or_ask, refused_in_words
from dlq_handler.surface.cli.options import (
    ConfigOption,
    Output,
    OutputOption,
    ReasonOption,
    VersionOption,
    read_duration,
)
from dlq_handler.surface.cli.patience import wait_for
from dlq_handler.surface.cli.printing import print_error, print_json, print_table, print_warning
from dlq_handler.surface.cli.times import utc

app = typer.Typer(no_args_is_help=True, help="The webhook that is told of changes, and its mute.")

_NOBODY = "nobody is told: set dlq_handler.notify.webhook_url"


@app.command()
def status(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """Show who is told, whether it is muted, and what was last told of each kind of diagnosis."""
    settings = load_or_exit(config).settings
    look, mute = wait_for("reading what was told", _look(settings))
    url = settings.dlq_handler.notify.webhook_url
    shown: dict[str, object] = {
        "webhook": url,
        "muted_until": mute.until if mute else None,
        "muted_by": mute.by if mute else None,
        "reason": mute.reason if mute else None,
        "version": mute_version(mute),
    }
    if output is Output.JSON:
        print_json(shown | {"told": list(look.told.values())})
        return
    print_table(("FIELD", "VALUE"), list(shown.items()), now=look.now)
    print()
    print_table(
        ("KIND", "TOLD", "AT", "SENTENCE"),
        [(one.kind, one.health, one.at, one.sentence) for one in look.told.values()],
        empty=_NOBODY if url is None else "nothing was told yet",
        now=look.now,
    )


@app.command()
def mute(
    for_: Annotated[
        timedelta,
        typer.Option("--for", parser=read_duration, metavar="30m|2h|1d", help="For so long nobody is told."),
    ],
    reason: ReasonOption = None,
    version: VersionOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Tell nobody for a while; what is still wrong at its end is told then. On record (`audit list`)."""
    settings = load_or_exit(config).settings
    if not for_:
        raise typer.BadParameter("0s is no time; `notify unmute` ends a mute", param_hint="--for")
    # As it is now: whoever types the reason must not undo what a colleague decides meanwhile.
    seen = wait_for("looking at the mute", _seen(settings))
    if seen is not None:
        print_warning(f"muted until {utc(seen.until)} by {seen.by} ({seen.reason}): this takes its place")
    version = version or mute_version(seen)
    why = reason_or_ask(reason)
    with refused_in_words():
        held = wait_for("muting", _mute(settings, for_.total_seconds(), why, version))
    if output is Output.JSON:
        print_json(held)
    elif held is not None:
        print(f"nobody is told until {utc(held.until)}")


@app.command()
def unmute(
    reason: ReasonOption = None,
    version: VersionOption = None,
    config: ConfigOption = None,
) -> None:
    """End a mute: what is wrong is told at once. On record (`audit list`)."""
    settings = load_or_exit(config).settings
    version = version or mute_version(wait_for("looking at the mute", _seen(settings)))
    why = reason_or_ask(reason)
    with refused_in_words():
        wait_for("ending the mute", _unmute(settings, why, version))
    print("told again")


@app.command("test")
def send_test(config: ConfigOption = None) -> None:
    """Send a message that tells of nothing, muted or not. Exit 1: nobody took it."""
    settings = load_or_exit(config).settings
    url = settings.dlq_handler.notify.webhook_url
    if url is None:
        print_error(_NOBODY)
        raise typer.Exit(1)
    try:
        wait_for("waiting for its answer", _test(settings))
    except WebhookFailed as error:
        print_error(f"{url.redacted()}: {error.what}")
        raise typer.Exit(1) from None
    print(f"{url.redacted()} took it")


async def _look(settings: Settings) -> tuple[NotifiedLook, Mute | None]:
    async with compose.open_database(settings) as database:
        async with database.transaction() as tx:
            look = await notified.look(tx)
        return look, await store_mute.look(database)


async def _seen(settings: Settings) -> Mute | None:
    async with compose.open_database(settings) as database:
        return await store_mute.look(database)


async def _mute(settings: Settings, seconds: float, reason: str, version: str) -> Mute | None:
    async with open_operating(settings) as (operating, _):
        _, held = await operating.mute(actor(), for_seconds=seconds, reason=reason, version=version)
        return held


async def _unmute(settings: Settings, reason: str, version: str) -> None:
    async with open_operating(settings) as (operating, _):
        await operating.unmute(actor(), reason=reason, version=version)


async def _test(settings: Settings) -> None:
    hook = notify.webhook(settings)
    assert hook is not None  # noqa: S101  # looked at above
    await hook.post(rehearsal(at=datetime.now(UTC), sender=notify.sender(settings), by=operator()))
