"""`dlq-handler doctor`: the view of `status` and the checks that only it makes, each with the action.

It collects the view itself, also beside a running replica: it tests the settings, the network and the rights of this
machine. Its exit code rests on what the processing of a dead letter requires. A worker that is unavailable is what
dlq-handler is for, and does not count.
"""

from collections.abc import Sequence
from typing import Annotated

import typer

from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.open import open_doctor
from dlq_handler.cli.options import ConfigOption, Output, OutputOption
from dlq_handler.cli.patience import wait_for
from dlq_handler.cli.printing import print_json, print_progress, print_table, printable
from dlq_handler.cli.status import EXIT_CODES
from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.diagnose import diagnose_for_doctor
from dlq_handler.diagnosis.diagnosis import REPAIR_FIRST, SIGNS, Diagnosis, Health, conclusion_of
from dlq_handler.diagnosis.observe import with_live_replica
from dlq_handler.settings import Loaded


def doctor(
    canary: Annotated[
        bool,
        typer.Option(
            help="Send canaries and wait for them, some seconds; without it nothing is sent or declared."
        ),
    ] = True,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check settings, servers, rights, tables, clocks, topology, consumers and canaries, and print what to do.

    Exit 0: dlq-handler can process dead letters. Exit 1: something that it requires is wrong. Exit 2: some of it is
    unknown. Works with servers down. Other problems are listed below and do not change the exit code: for them use
    `status`.
    """
    loaded = load_or_exit(config)
    diagnoses = wait_for("examining", _examine(loaded, canary))
    required = [one for one in diagnoses if one.is_required]
    conclusion = conclusion_of(required)
    if output is Output.JSON:
        print_json({"conclusion": conclusion, "diagnoses": diagnoses})
    else:
        others = [one for one in diagnoses if not one.is_required]
        # First: below the lines of another mode it is read too late.
        for one in others:
            if one.check is Check.SHADOW_MODE and one.action is not None:
                print(f"{printable(one.explanation)}\n  next: {printable(one.action)}\n")
        print_required(required)
        print_others([one for one in others if one.check is not Check.SHADOW_MODE])
        print(f"\nconclusion: {conclusion}: {_MEANS[conclusion]}{_other_problems(others)}")
        if loaded.settings.dlq_handler.shadow.enabled:
            print("shadow mode (dry run) is on: no execution is changed, and no event is published")
    raise typer.Exit(EXIT_CODES[conclusion])


async def _examine(loaded: Loaded, with_canary: bool) -> Sequence[Diagnosis]:
    async with open_doctor(
        loaded.settings, warnings=loaded.warnings, with_canary=with_canary, say=print_progress
    ) as (
        collector,
        opened,
    ):
        view = await collector.collect()
        if loaded.settings.is_shadow and view.has_database:
            view = await with_live_replica(view, opened.database)
        return diagnose_for_doctor(view, await opened.examine(view))


# "ok" alone, below the lines of other problems, would read as if those were fine.
_MEANS = {
    Health.OK: "dlq-handler can process dead letters",
    Health.PROBLEM: "dlq-handler lacks what is listed first",
    Health.UNKNOWN: "it is unknown whether dlq-handler can process dead letters",
}


def _other_problems(others: Sequence[Diagnosis]) -> str:
    """They do not change the exit code, and must not be covered by an "ok" either."""
    found = [one.check.value for one in others if one.health is Health.PROBLEM]
    if not found:
        return ""
    count = "1 other problem" if len(found) == 1 else f"{len(found)} other problems"
    return f". {count}: {', '.join(found)} (`dlq-handler status`)"


def print_required(diagnoses: Sequence[Diagnosis]) -> None:
    print_table(
        ("STATE", "COMPONENT", "CHECK", "EXPLANATION"),
        [(one.health, one.component, one.check, one.explanation) for one in diagnoses],
    )
    # One unavailable server makes ten results unknown: the action is printed once.
    alike: dict[tuple[str, str], list[Diagnosis]] = {}
    for one in diagnoses:
        if one.action is not None:
            alike.setdefault((one.explanation, one.action), []).append(one)
    # One that only refers to a problem above is the same for all of them.
    repeated = [those for (_, action), those in alike.items() if action == REPAIR_FIRST]
    for (explanation, action), those in alike.items():
        checks = ", ".join(one.check.value for one in those)
        print(f"\n{checks}: {printable(explanation)}")
        if action != REPAIR_FIRST or those is repeated[-1]:
            print(f"  next: {printable(action)}")
        if those[0].runbook is not None and those[0].health is Health.PROBLEM:
            print(f"  read: {those[0].runbook}")
    for one in diagnoses:
        for note in one.evidence:
            print(f"\nnote on {one.check}: {printable(note)}")


def print_others(diagnoses: Sequence[Diagnosis]) -> None:
    print("\nother checks (`dlq-handler status` prints their evidence):")
    for one in diagnoses:
        if one.action is None:
            continue
        if one.health is Health.OK:
            print(f"note on {one.check}: {printable(one.explanation)} {printable(one.action)}")
            continue
        print(f"{SIGNS[one.health]} {one.health}  {one.subject}: {printable(one.explanation)}")
        if one.action == REPAIR_FIRST:
            # Printed above, with the problem that it refers to.
            continue
        print(f"  next: {printable(one.action)}\n  read: {one.runbook}")
    fine = ", ".join(one.check.value for one in diagnoses if one.action is None)
    if fine:
        print(f"{SIGNS[Health.OK]} ok: {fine}")
