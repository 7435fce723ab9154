"""`dlq-handler game-day`: kill nobody, lose a dispatch on purpose, and see that it ends as it should."""

import asyncio
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from dlq_handler import compose
from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.broker.game_day import AnotherGameDay, Witness
from dlq_handler.broker.worker_queue import LARGEST_TTL_MS, WorkerQueueRefused
from dlq_handler.domain.broker_permissions import WITNESS_QUEUE
from dlq_handler.domain.game_day import GameDayPlan
from dlq_handler.domain.game_day_report import Conclusion, GameDayReport
from dlq_handler.domain.game_day_svg import in_time, svg
from dlq_handler.errors import RowRejected
from dlq_handler.services.game_day import GameDay
from dlq_handler.settings import Settings
from dlq_handler.store.engine import Database
from dlq_handler.store.grants import missing_game_day_grants
from dlq_handler.surface.cli.config import load_or_exit
from dlq_handler.surface.cli.exits import EXIT_NOT_ASKED
from dlq_handler.surface.cli.operator import operator
from dlq_handler.surface.cli.options import ConfigOption, Output, OutputOption, read_duration
from dlq_handler.surface.cli.patience import wait_for
from dlq_handler.surface.cli.printing import print_error, print_json, print_table, print_warning, printable

EXIT_CODES = {Conclusion.RESCUED: 0, Conclusion.NOT_RESCUED: 1, Conclusion.CANNOT_TELL: 2}

YesOption = Annotated[
    bool, typer.Option("--yes", help="Do it; without it the plan is printed, or you are asked.")
]
TtlOption = Annotated[
    timedelta,
    typer.Option(
        "--ttl", parser=read_duration, metavar="5s", help="How long the dispatch waits before it expires."
    ),
]
LimitOption = Annotated[
    timedelta,
    typer.Option(
        "--limit",
        parser=read_duration,
        metavar="30s",
        help="How long verdict and notice may take from the expiry on.",
    ),
]
SvgOption = Annotated[
    Path | None,
    typer.Option(
        "--svg", metavar="FILE", dir_okay=False, writable=True, help="Also draw the timeline into this file."
    ),
]


def game_day(
    *,
    yes: YesOption = False,
    ttl: TtlOption = "5s",  # type: ignore[assignment]  # typer parses defaults too
    limit: LimitOption = "30s",  # type: ignore[assignment]  # typer parses defaults too
    svg_file: SvgOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Dispatch one execution to a worker that does not exist, and time how the running sidecar ends it.

    Exit 0: rescued. 1: not within the limit. 2: it cannot be told. 64: nothing was done for want of --yes. Real work is
    not touched, and neither a metric nor the brake counts it. Needs rights of its own: `dlq-handler grants --game-day`.
    """
    settings = load_or_exit(config).settings
    plan = _plan(settings, ttl, limit)
    if svg_file is not None and not svg_file.parent.is_dir():
        # Now, not after half a minute of waiting.
        raise typer.BadParameter(f"there is no folder {svg_file.parent}", param_hint="--svg")
    _refuse_in_vain(settings)
    if not yes:
        _ask(plan, output)
    try:
        held = wait_for("holding the game day", _hold(settings, plan, output))
    except AnotherGameDay:
        _cannot_tell(
            f"another game day is being held: queue {WITNESS_QUEUE!r} is taken; wait until it is over"
        )
    except WorkerQueueRefused as refused:
        _cannot_tell(str(refused))
    except RowRejected as error:
        _cannot_tell(f"the host's database refuses the execution: {error}")
    except (KeyboardInterrupt, asyncio.CancelledError) as end:
        print_error(
            "interrupted: queue and bindings are removed; an execution that was scheduled already is left to "
            "the timeout monitor"
        )
        # As a shell tells the signal: Ctrl-C, or SIGTERM.
        raise typer.Exit(130 if isinstance(end, KeyboardInterrupt) else 143) from None
    if svg_file is not None:
        svg_file.write_text(svg(held), encoding="utf-8")
    _print(held, output)
    raise typer.Exit(EXIT_CODES[held.conclusion])


def _plan(settings: Settings, ttl: timedelta, limit: timedelta) -> GameDayPlan:
    ttl_ms = int(ttl.total_seconds() * 1000)
    if not 1 <= ttl_ms <= LARGEST_TTL_MS:
        raise typer.BadParameter(f"a TTL of {ttl_ms} ms is not possible", param_hint="--ttl")
    return GameDayPlan(
        blueprint=compose.blueprint(settings),
        notice_key=settings.dlq_handler.outbox.routing_key,
        ttl_ms=ttl_ms,
        limit_seconds=limit.total_seconds(),
    )


def _refuse_in_vain(settings: Settings) -> None:
    if settings.dlq_handler.shadow.enabled:
        _cannot_tell(
            "in shadow mode nothing is ended (dlq_handler.shadow.enabled): there is nothing to rehearse"
        )
    if not settings.message_queue.rabbitmq.dead_letter.enabled:
        _cannot_tell("no letters are taken (message_queue.rabbitmq.dead_letter.enabled is false)")


def _cannot_tell(why: str) -> NoReturn:
    print_error(why)
    raise typer.Exit(EXIT_CODES[Conclusion.CANNOT_TELL])


def _ask(plan: GameDayPlan, output: Output) -> None:
    if output is Output.JSON:
        print_json({"creates_and_removes": list(plan.passing()), "creates_and_leaves": list(plan.staying())})
    else:
        print("This creates, and removes at the end:")
        print("\n".join(f"  {line}" for line in plan.passing()))
        print("This creates, and leaves as evidence:")
        print("\n".join(f"  {line}" for line in plan.staying()))
    is_asked = sys.stdin.isatty() and sys.stdout.isatty() and output is Output.TEXT
    if not (is_asked and typer.confirm("Go ahead?")):
        print_error("nothing was done; add --yes to do it")
        raise typer.Exit(EXIT_NOT_ASKED)


async def _hold(settings: Settings, plan: GameDayPlan, output: Output) -> GameDayReport:
    _end_by_cancelling(signal.SIGTERM)
    address = compose.broker_address(settings)
    publisher = compose.publisher(settings, address)
    async with compose.open_database(settings) as database, AdminLink(address) as link:
        await _refuse_without_rights(database)
        day = GameDay(
            plan=plan,
            database=database,
            link=link,
            witness=Witness(address, plan),
            publisher=publisher,
            brake_policy=compose.brake_policy(settings),
            config={"held_by": operator(), "ttl_ms": plan.ttl_ms},
            say=_say if output is Output.TEXT else lambda _: None,
        )
        try:
            return await day.hold()
        finally:
            await publisher.close()
            for left in day.left_behind:
                print_warning(f"could not be removed: {left}; the next game day removes it")


def _say(line: str) -> None:
    print(printable(line), flush=True)


def _end_by_cancelling(number: signal.Signals) -> None:
    """As Ctrl-C does it: at the end of a process that is told to go, its queue must not stay."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  # we are in one
    asyncio.get_running_loop().add_signal_handler(number, task.cancel)


async def _refuse_without_rights(database: Database) -> None:
    missing = await missing_game_day_grants(database)
    if missing:
        print_error("a game day makes an execution of its own; an administrator has to allow it first:")
        print("\n".join(missing))
        raise typer.Exit(EXIT_CODES[Conclusion.CANNOT_TELL])


def _print(held: GameDayReport, output: Output) -> None:
    if output is Output.JSON:
        print_json(held)
        return
    if held.steps:
        print_table(
            ("STEP", "AT", "TOOK", "WHAT"),
            [
                (
                    step.name,
                    step.at,
                    "-" if step.took_seconds is None else in_time(step.took_seconds),
                    step.what,
                )
                for step in held.steps
            ],
        )
        print()
    print(printable(f"conclusion: {held.conclusion}: {held.why}"))
    if held.advice is not None:
        print(printable(f"what to do: {held.advice}"))
    if held.execution_id is not None:
        print(f"evidence: `dlq-handler executions explain {held.execution_id}`")
