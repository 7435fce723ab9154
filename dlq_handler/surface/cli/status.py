"""`dlq-handler status`: whose fault, since when, how much, what next. Reads only, and needs no running sidecar."""

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime

import typer

from dlq_handler.compose import open_database
from dlq_handler.compose.view import open_lookout
from dlq_handler.domain.diagnosis import Diagnosis, conclusion_of
from dlq_handler.domain.doctor import MEND_FIRST
from dlq_handler.domain.observation import SIGNS, Health
from dlq_handler.domain.view import View
from dlq_handler.services.diagnoser import diagnose_once
from dlq_handler.settings import Settings
from dlq_handler.surface.cli.config import load_or_exit
from dlq_handler.surface.cli.exits import EXIT_CANNOT_TELL, EXIT_FAILED, EXIT_FINE
from dlq_handler.surface.cli.options import ConfigOption, Output, OutputOption
from dlq_handler.surface.cli.patience import wait_for
from dlq_handler.surface.cli.printing import print_json, print_table, printable
from dlq_handler.surface.cli.times import utc, with_age

# As those of `topology check`.
EXIT_CODES = {Health.OK: EXIT_FINE, Health.PROBLEM: EXIT_FAILED, Health.CANNOT_TELL: EXIT_CANNOT_TELL}

_COLUMNS = ("STATE", "PART", "KIND", "SINCE", "SENTENCE", "EVIDENCE", "NEXT STEP", "COMMAND", "RUNBOOK")


def status(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """Say what is wrong, the worst first: the part, since when, the evidence, and what to do.

    Exit 0: all is well. Exit 1: something is wrong. Exit 2: something cannot be told. Works with servers down,
    and while no sidecar runs. In a pipe: one line for each diagnosis, fields separated by tabs.
    """
    settings = load_or_exit(config).settings
    view, diagnoses = wait_for("asking the database and the broker", look(settings))
    conclusion = conclusion_of(diagnoses)
    if output is Output.JSON:
        print_json({"conclusion": conclusion, "at": view.at, "diagnoses": diagnoses})
    elif sys.stdout.isatty():
        print_for_people(diagnoses, conclusion, view.at)
    else:
        print_lines(diagnoses)
    raise typer.Exit(EXIT_CODES[conclusion])


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
                one.part,
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


def print_for_people(diagnoses: Sequence[Diagnosis], conclusion: Health, now: datetime) -> None:
    folded = _waiting_alike(diagnoses)
    for one in diagnoses:
        if one.health is not Health.OK and not (one.next_step == MEND_FIRST and one.said in folded):
            _print_in_full(one, now)
    for reason, kinds in folded.items():
        print(f"{SIGNS[Health.CANNOT_TELL]} {Health.CANNOT_TELL}  {', '.join(kinds)}: {printable(reason)}")
    if folded:
        print(f"    {'next':6} {MEND_FIRST}\n")
    fine = [one.kind for one in diagnoses if one.health is Health.OK]
    print(f"{SIGNS[Health.OK]} ok: {', '.join(fine) or 'nothing'}")
    print(f"{SIGNS[conclusion]} {conclusion}{_worst_of(diagnoses, conclusion)}, as of {utc(now)}")


def _waiting_alike(diagnoses: Sequence[Diagnosis]) -> Mapping[str, Sequence[str]]:
    """Kinds by the reason for which two or more cannot be told. A server that is away takes a dozen of them with it: in
    full, they push what is to be mended off the screen.
    """
    kinds: dict[str, list[str]] = {}
    for one in diagnoses:
        if one.next_step == MEND_FIRST:
            kinds.setdefault(one.said, []).append(one.kind)
    return {reason: those for reason, those in kinds.items() if len(those) > 1}


def _print_in_full(one: Diagnosis, now: datetime) -> None:
    since = None if one.since is None else with_age(one.since, now)
    print(f"{SIGNS[one.health]} {one.health}  {printable(one.headline)}{f' since {since}' if since else ''}.")
    print(f"    what   {one.subject}: {printable(one.said)}")
    told = {
        "next": one.next_step,
        "run": one.command,
        "read": one.runbook,
    }
    for evidence in one.evidence:
        print(f"    seen   {printable(evidence)}")
    for word, value in told.items():
        if value is not None:
            print(f"    {word:6} {printable(value)}")
    print()


def _worst_of(diagnoses: Sequence[Diagnosis], conclusion: Health) -> str:
    """For the last line, which is all that is left of a long answer; nothing when all is well."""
    alike = [one.kind for one in diagnoses if one.health is conclusion]
    if conclusion is Health.OK or not alike:
        return ""
    return f": {alike[0]}" + (f" and {len(alike) - 1} more" if len(alike) > 1 else "")
