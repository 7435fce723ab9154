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
from dlq_handler.diagnosis.diagnose import diagnose_for_doctor
from dlq_handler.diagnosis.diagnosis import SIGNS, Diagnosis, Health, conclusion_of
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

    Exit 0: everything is there that dlq-handler requires. Exit 1: some of it is wrong. Exit 2: some of it is unknown.
    Works with servers down. Other problems are listed below and do not change the exit code: for them use `status`.
    """
    loaded = load_or_exit(config)
    diagnoses = wait_for("examining", _examine(loaded, canary))
    required = [one for one in diagnoses if one.is_required]
    conclusion = conclusion_of(required)
    if output is Output.JSON:
        print_json({"conclusion": conclusion, "diagnoses": diagnoses})
    else:
        print_required(required)
        print_others([one for one in diagnoses if not one.is_required])
        print(f"\nconclusion: {conclusion}: {_MEANS[conclusion]}")
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
        return diagnose_for_doctor(view, await opened.examine(view))


# "ok" alone, below the lines of other problems, would read as if those were fine.
_MEANS = {
    Health.OK: "everything is there that dlq-handler requires",
    Health.PROBLEM: "dlq-handler lacks what is listed first",
    Health.UNKNOWN: "it is unknown whether dlq-handler could process a dead letter",
}


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
    for (explanation, action), those in alike.items():
        checks = ", ".join(one.check.value for one in those)
        print(f"\n{checks}: {printable(explanation)}\n  next: {printable(action)}")
        if those[0].runbook is not None and those[0].health is Health.PROBLEM:
            print(f"  read: {those[0].runbook}")
    for one in diagnoses:
        for note in one.evidence:
            print(f"\nnote on {one.check}: {printable(note)}")


def print_others(diagnoses: Sequence[Diagnosis]) -> None:
    print("\nother checks (`dlq-handler status` prints their evidence):")
    for one in diagnoses:
        if one.action is not None:
            print(f"{SIGNS[one.health]} {one.health}  {one.subject}: {printable(one.explanation)}")
            print(f"  next: {printable(one.action)}\n  read: {one.runbook}")
    fine = ", ".join(one.check.value for one in diagnoses if one.action is None)
    if fine:
        print(f"{SIGNS[Health.OK]} ok: {fine}")
