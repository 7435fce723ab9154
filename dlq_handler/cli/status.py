"""`dlq-handler status`: what is wrong, since when, the evidence, the action. Reads only, and needs no running replica.

With `--watch` it asks again at an interval, over the same connections, and shows each answer with the same renderer.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import typer

from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.exits import EXIT_FAILED, EXIT_FINE, EXIT_UNKNOWN
from dlq_handler.cli.options import ConfigOption, Output, OutputOption, duration
from dlq_handler.cli.patience import patience, run_until_interrupted, wait_for
from dlq_handler.cli.printing import jsonable, print_json, print_table, printable, utc, with_age
from dlq_handler.clock import monotonic_seconds
from dlq_handler.diagnosis.diagnosis import REPAIR_FIRST, SIGNS, Diagnosis, Health, conclusion_of
from dlq_handler.diagnosis.observe import CommandObservation, observe
from dlq_handler.diagnosis.view import UnknownCause, View
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database
from dlq_handler.text import in_units

# As those of `topology check`.
EXIT_CODES = {Health.OK: EXIT_FINE, Health.PROBLEM: EXIT_FAILED, Health.UNKNOWN: EXIT_UNKNOWN}

_COLUMNS = (
    "STATE", "COMPONENT", "CHECK", "SINCE", "EXPLANATION", "EVIDENCE", "ACTION", "COMMAND", "RUNBOOK",
)  # fmt: skip

# These explain themselves elsewhere: the check of the server says what to do.
_FOLDED = (UnknownCause.DATABASE_UNAVAILABLE, UnknownCause.BROKER_UNAVAILABLE, UnknownCause.REFUSED)

_ASKING = "asking the database and the broker"
_SHORTEST_INTERVAL = timedelta(seconds=1)


class _InvalidInterval(typer.BadParameter):
    def format_message(self) -> str:
        """As written: typer's own text leaves the value out."""
        return self.message


def _read_interval(text: str) -> timedelta:
    interval = duration(text)
    if interval is None:
        raise _InvalidInterval(
            f"Invalid value {text!r} for --watch: must be a duration such as 5s, 10m or 2h."
        )
    if interval < _SHORTEST_INTERVAL:
        raise _InvalidInterval(f"Invalid value {text!r} for --watch: must be at least 1s.")
    return interval


WatchOption = Annotated[
    timedelta | None,
    typer.Option(
        "--watch",
        parser=_read_interval,
        metavar="5s",
        help="Ask again after this time, until Ctrl-C. A terminal is redrawn in place. In a pipe each answer begins "
        "with a line `as of TIME`; with `--output json` it is one line.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusAnswer:
    at: datetime
    diagnoses: Sequence[Diagnosis]
    replica: str | None = None
    """The replica that made the observation; None: this command."""
    age_seconds: float = 0.0
    is_shadow: bool = False

    @classmethod
    def of(cls, observed: CommandObservation, *, is_shadow: bool) -> "StatusAnswer":
        return cls(
            at=observed.view.at,
            diagnoses=observed.diagnoses,
            replica=observed.replica,
            age_seconds=observed.age_seconds,
            is_shadow=is_shadow,
        )

    @property
    def conclusion(self) -> Health:
        return conclusion_of(self.diagnoses)

    def for_programs(self) -> dict[str, object]:
        return {"conclusion": self.conclusion, "at": self.at, "diagnoses": self.diagnoses}


def status(
    *, watch: WatchOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Show what is wrong, the worst first: the component, since when, the evidence, and what to do.

    Exit 0: all is well. Exit 1: something is wrong. Exit 2: something is unknown. Works with servers down,
    and while no replica runs. In a pipe: one line for each diagnosis, fields separated by tabs.
    Ctrl-C ends `--watch` with the exit code of the last answer, 2 before the first one.
    """
    settings = load_or_exit(config).settings
    if watch is not None:
        raise typer.Exit(_watch(settings, watch, output))
    answer = wait_for(_ASKING, _answer_once(settings))
    if output is Output.JSON:
        print_json(answer.for_programs())
    elif sys.stdout.isatty():
        print_for_people(answer)
    else:
        print_lines(answer.diagnoses)
    raise typer.Exit(EXIT_CODES[answer.conclusion])


def _watch(settings: Settings, interval: timedelta, output: Output) -> int:
    """The exit code of the last answer that was shown."""
    is_redrawn = output is Output.TEXT and sys.stdout.isatty()
    last = _LastAnswer()
    run_until_interrupted(
        _redraw(settings, interval, last) if is_redrawn else _print_each(settings, interval, output, last)
    )
    return last.exit_code


@dataclass(slots=True)
class _LastAnswer:
    """Kept outside of the coroutine, which Ctrl-C ends anywhere."""

    text: str | None = None
    shown_at: float = 0.0
    exit_code: int = EXIT_UNKNOWN


async def _redraw(settings: Settings, interval: timedelta, last: _LastAnswer) -> None:
    # Only `--watch` on a terminal needs them.
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    every = in_units(interval.total_seconds())

    def screen() -> Text:
        if last.text is None:
            return Text(f"{_ASKING} …")
        age = in_units(monotonic_seconds() - last.shown_at)
        return Text(f"every {every}, answered {age} ago, Ctrl-C ends\n\n{last.text}")

    # Live also crops an answer that is longer than the window, and leaves the last one in full when it ends.
    with Live(get_renderable=screen, console=Console(highlight=False), refresh_per_second=2):
        async with aclosing(_answers(settings, interval)) as answers:
            async for answer in answers:
                last.text, last.shown_at = "\n".join(lines_for_people(answer)), monotonic_seconds()
                last.exit_code = EXIT_CODES[answer.conclusion]


async def _print_each(settings: Settings, interval: timedelta, output: Output, last: _LastAnswer) -> None:
    async with aclosing(_answers(settings, interval, is_patient=True)) as answers:
        async for answer in answers:
            if output is Output.JSON:
                print(json.dumps(jsonable(answer.for_programs())))
            else:
                print(f"as of {utc(answer.at)}")
                print_lines(answer.diagnoses)
            # A pipe holds lines back until it has some KB of them.
            sys.stdout.flush()
            last.exit_code = EXIT_CODES[answer.conclusion]


async def _answers(
    settings: Settings, interval: timedelta, *, is_patient: bool = False
) -> AsyncGenerator[StatusAnswer, None]:
    """Over one connection to each server: the broker logs every new one."""
    async with open_database(settings) as database, AsyncExitStack() as opened:
        collect = collect_when_needed(settings, opened)
        while True:
            with patience(_ASKING) if is_patient else nullcontext():
                observed = await observe(database, collect, is_shadow=settings.is_shadow)
            yield StatusAnswer.of(observed, is_shadow=settings.is_shadow)
            await asyncio.sleep(interval.total_seconds())


async def _answer_once(settings: Settings) -> StatusAnswer:
    async with open_database(settings) as database, AsyncExitStack() as opened:
        collect = collect_when_needed(settings, opened)
        observed = await observe(database, collect, is_shadow=settings.is_shadow)
    return StatusAnswer.of(observed, is_shadow=settings.is_shadow)


def collect_when_needed(settings: Settings, opened: AsyncExitStack) -> Callable[[], Awaitable[View]]:
    """Connects once, at the first call. The libraries of the broker take as long to import as a shared view to read."""
    collector = None

    async def collect() -> View:
        nonlocal collector
        if collector is None:
            from dlq_handler.cli.open import open_collector  # noqa: PLC0415

            collector = await opened.enter_async_context(open_collector(settings))
        return await collector.collect()

    return collect


def print_lines(diagnoses: Sequence[Diagnosis]) -> None:
    print_table(
        _COLUMNS,
        [
            (
                one.health,
                one.component,
                one.check,
                one.since,
                one.explanation,
                "; ".join(one.evidence) or None,
                one.action,
                one.command,
                one.runbook,
            )
            for one in diagnoses
        ],
    )


def print_for_people(answer: StatusAnswer) -> None:
    for line in lines_for_people(answer):
        print(line)


def lines_for_people(answer: StatusAnswer) -> Iterator[str]:
    diagnoses, conclusion = answer.diagnoses, answer.conclusion
    folded = _unknown_alike(diagnoses)
    for one in diagnoses:
        if one.health is not Health.OK and not (_may_fold(one) and one.explanation in folded):
            yield from _lines_in_full(one, answer.at)
    for reason, checks in folded.items():
        yield f"{SIGNS[Health.UNKNOWN]} {Health.UNKNOWN}  {', '.join(checks)}: {printable(reason)}"
    if folded:
        yield from (f"    {'next':6} {REPAIR_FIRST}", "")
    fine = [one.check.value for one in diagnoses if one.health is Health.OK]
    yield f"{SIGNS[Health.OK]} ok: {', '.join(fine) or 'nothing'}"
    for one in diagnoses:
        if one.health is Health.OK and one.action is not None:
            yield f"    {'note':6} {one.subject}: {printable(one.explanation)} {printable(one.action)}"
    as_of = f"as of {utc(answer.at)}{_observer_of(answer)}"
    yield f"{SIGNS[conclusion]} {conclusion}{_worst_of(diagnoses, conclusion)}, {as_of}"


def _observer_of(answer: StatusAnswer) -> str:
    """A replica observes at an interval, so its answer has an age. Without one the command has observed just now."""
    if answer.replica is None:
        return " (shadow mode)" if answer.is_shadow else ""
    mode = "shadow mode" if answer.is_shadow else "live mode"
    return f" ({in_units(answer.age_seconds)} ago, by replica {printable(answer.replica)}, {mode})"


def _may_fold(one: Diagnosis) -> bool:
    """Its result is unknown for the same reason as that of others: a server that is unavailable hides a dozen."""
    return one.unknown_cause in _FOLDED


def _unknown_alike(diagnoses: Sequence[Diagnosis]) -> Mapping[str, Sequence[str]]:
    """Checks by the reason for which two or more are unknown. In full, they push the cause off the screen."""
    checks: dict[str, list[str]] = {}
    for one in diagnoses:
        if _may_fold(one):
            checks.setdefault(one.explanation, []).append(one.check.value)
    return {reason: those for reason, those in checks.items() if len(those) > 1}


def _lines_in_full(one: Diagnosis, now: datetime) -> Iterator[str]:
    since = None if one.since is None else with_age(one.since, now)
    yield f"{SIGNS[one.health]} {one.health}  {printable(one.headline)}{f' since {since}' if since else ''}."
    yield f"    what   {one.subject}: {printable(one.explanation)}"
    for evidence in one.evidence:
        yield f"    seen   {printable(evidence)}"
    for word, value in {"next": one.action, "run": one.command, "read": one.runbook}.items():
        if value is not None:
            yield f"    {word:6} {printable(value)}"
    yield ""


def _worst_of(diagnoses: Sequence[Diagnosis], conclusion: Health) -> str:
    """For the last line, which is all that is left of a long answer; nothing when there is no problem."""
    alike = [one.check.value for one in diagnoses if one.health is conclusion]
    if conclusion is Health.OK or not alike:
        return ""
    return f": {alike[0]}" + (f" and {len(alike) - 1} more" if len(alike) > 1 else "")
