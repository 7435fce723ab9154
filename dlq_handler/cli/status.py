"""`dlq-handler status`: whose fault, since when, how much, what next. Reads only, and needs no running sidecar.

With `--watch` it asks again at an interval, over the same connections, and shows each answer with the same renderer.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.exits import EXIT_FAILED, EXIT_FINE, EXIT_UNKNOWN
from dlq_handler.cli.options import ConfigOption, Output, OutputOption, duration
from dlq_handler.cli.patience import patience, run_until_interrupted, wait_for
from dlq_handler.cli.printing import jsonable, print_json, print_table, printable, utc, with_age
from dlq_handler.clock import monotonic_seconds
from dlq_handler.compose.view import open_lookout
from dlq_handler.diagnosis.diagnoser import diagnose_once
from dlq_handler.diagnosis.diagnosis import Diagnosis, conclusion_of
from dlq_handler.diagnosis.doctor_lines import REPAIR_FIRST
from dlq_handler.diagnosis.observation import SIGNS, Health
from dlq_handler.diagnosis.view import View
from dlq_handler.settings import Settings
from dlq_handler.settings.servers import open_database
from dlq_handler.text import in_units

# As those of `topology check`.
EXIT_CODES = {Health.OK: EXIT_FINE, Health.PROBLEM: EXIT_FAILED, Health.UNKNOWN: EXIT_UNKNOWN}

_COLUMNS = ("STATE", "PART", "KIND", "SINCE", "SENTENCE", "EVIDENCE", "NEXT STEP", "COMMAND", "RUNBOOK")

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
class Answer:
    at: datetime
    diagnoses: Sequence[Diagnosis]

    @property
    def conclusion(self) -> Health:
        return conclusion_of(self.diagnoses)

    def for_programs(self) -> dict[str, object]:
        return {"conclusion": self.conclusion, "at": self.at, "diagnoses": self.diagnoses}


def status(
    *, watch: WatchOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Say what is wrong, the worst first: the part, since when, the evidence, and what to do.

    Exit 0: all is well. Exit 1: something is wrong. Exit 2: something cannot be told. Works with servers down,
    and while no sidecar runs. In a pipe: one line for each diagnosis, fields separated by tabs.
    Ctrl-C ends `--watch` with the exit code of the last answer, 2 before the first one.
    """
    settings = load_or_exit(config).settings
    if watch is not None:
        raise typer.Exit(_watch(settings, watch, output))
    view, diagnoses = wait_for(_ASKING, look(settings))
    answer = Answer(at=view.at, diagnoses=diagnoses)
    if output is Output.JSON:
        print_json(answer.for_programs())
    elif sys.stdout.isatty():
        print_for_people(answer)
    else:
        print_lines(diagnoses)
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
) -> AsyncGenerator[Answer, None]:
    """Over one connection to each server: the broker logs every new one."""
    async with open_database(settings) as database, open_lookout(settings) as lookout:
        while True:
            with patience(_ASKING) if is_patient else nullcontext():
                view = await lookout.look()
                answer = Answer(at=view.at, diagnoses=await diagnose_once(view, database))
            yield answer
            await asyncio.sleep(interval.total_seconds())


async def look(settings: Settings) -> tuple[View, Sequence[Diagnosis]]:
    async with open_database(settings) as database, open_lookout(settings) as lookout:
        view = await lookout.look()
        return view, await diagnose_once(view, database)


def print_lines(diagnoses: Sequence[Diagnosis]) -> None:
    print_table(
        _COLUMNS,
        [
            (
                one.health,
                one.component,
                one.kind,
                one.since,
                one.sentence,
                "; ".join(one.evidence) or None,
                one.next_step,
                one.command,
                one.runbook,
            )
            for one in diagnoses
        ],
    )


def print_for_people(answer: Answer) -> None:
    for line in lines_for_people(answer):
        print(line)


def lines_for_people(answer: Answer) -> Iterator[str]:
    diagnoses, conclusion = answer.diagnoses, answer.conclusion
    folded = _waiting_alike(diagnoses)
    for one in diagnoses:
        if one.health is not Health.OK and not (one.next_step == REPAIR_FIRST and one.said in folded):
            yield from _lines_in_full(one, answer.at)
    for reason, kinds in folded.items():
        yield f"{SIGNS[Health.UNKNOWN]} {Health.UNKNOWN}  {', '.join(kinds)}: {printable(reason)}"
    if folded:
        yield from (f"    {'next':6} {REPAIR_FIRST}", "")
    fine = [one.kind for one in diagnoses if one.health is Health.OK]
    yield f"{SIGNS[Health.OK]} ok: {', '.join(fine) or 'nothing'}"
    yield f"{SIGNS[conclusion]} {conclusion}{_worst_of(diagnoses, conclusion)}, as of {utc(answer.at)}"


def _waiting_alike(diagnoses: Sequence[Diagnosis]) -> Mapping[str, Sequence[str]]:
    """Kinds by the reason for which two or more cannot be told. A server that is away takes a dozen of them with it: in
    full, they push what is to be repaired off the screen.
    """
    kinds: dict[str, list[str]] = {}
    for one in diagnoses:
        if one.next_step == REPAIR_FIRST:
            kinds.setdefault(one.said, []).append(one.kind)
    return {reason: those for reason, those in kinds.items() if len(those) > 1}


def _lines_in_full(one: Diagnosis, now: datetime) -> Iterator[str]:
    since = None if one.since is None else with_age(one.since, now)
    yield f"{SIGNS[one.health]} {one.health}  {printable(one.headline)}{f' since {since}' if since else ''}."
    yield f"    what   {one.subject}: {printable(one.said)}"
    told = {
        "next": one.next_step,
        "run": one.command,
        "read": one.runbook,
    }
    for evidence in one.evidence:
        yield f"    seen   {printable(evidence)}"
    for word, value in told.items():
        if value is not None:
            yield f"    {word:6} {printable(value)}"
    yield ""


def _worst_of(diagnoses: Sequence[Diagnosis], conclusion: Health) -> str:
    """For the last line, which is all that is left of a long answer; nothing when all is well."""
    alike = [one.kind for one in diagnoses if one.health is conclusion]
    if conclusion is Health.OK or not alike:
        return ""
    return f": {alike[0]}" + (f" and {len(alike) - 1} more" if len(alike) > 1 else "")
