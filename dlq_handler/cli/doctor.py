"""`dlq-handler doctor`: everything that a rescue depends on, looked at once, each line with what to do about it.

Behind it, what is wrong right now, in the words of `status`. It does not decide how the doctor ends: a worker that is
gone is what the sidecar is for, and whoever sets up a new one asks whether the next rescue would work.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.options import ConfigOption, Output, OutputOption
from dlq_handler.cli.patience import wait_for
from dlq_handler.cli.printing import jsonable, print_json, print_table, printable
from dlq_handler.cli.status import EXIT_CODES, look
from dlq_handler.compose.doctor import open_doctor
from dlq_handler.diagnosis.diagnosis import SHADOW, Diagnosis, page_of
from dlq_handler.diagnosis.doctor_broker_lines import SIDECAR
from dlq_handler.diagnosis.observation import SIGNS, Health, Observation, conclude, worst_first
from dlq_handler.settings import Loaded
from dlq_handler.tasks import task_group


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
    """Look at settings, servers, rights, tables, clocks, topology, consumers and the canary, and say what to do.

    Exit 0: all is there that a rescue needs. Exit 1: something of it is wrong. Exit 2: something cannot be told. Works
    with servers down. What else is wrong right now is told below it and changes no exit code: that is `status`.
    """
    loaded = load_or_exit(config)
    observations, diagnoses = wait_for("examining", _examine(loaded, canary))
    observations = worst_first(with_replica_answer(observations, diagnoses))
    conclusion = conclude(observations)
    besides = beyond(observations, diagnoses)
    if output is Output.JSON:
        told = [jsonable(seen) | {"runbook": page_of(seen)} for seen in observations]
        print_json({"conclusion": conclusion, "observations": told, "right_now": besides})
    else:
        _print(observations)
        print_right_now(besides)
        print(f"\nconclusion: {conclusion}: {_MEANS[conclusion]}")
        if loaded.settings.dlq_handler.shadow.enabled:
            print("shadow mode (dry run) is on: no execution is changed, and no event is published")
    raise typer.Exit(EXIT_CODES[conclusion])


async def _examine(loaded: Loaded, with_canary: bool) -> tuple[list[Observation], Sequence[Diagnosis]]:
    """Side by side: each waits for servers, and neither needs the other."""
    async with task_group() as asking:
        looking = asking.create_task(look(loaded.settings))
        async with open_doctor(
            loaded.settings, warnings=loaded.warnings, with_canary=with_canary, say=_say
        ) as opened:
            observations = await opened.examine()
    _, diagnoses = looking.result()
    return observations, diagnoses


def beyond(observations: Iterable[Observation], diagnoses: Iterable[Diagnosis]) -> list[Diagnosis]:
    """The diagnoses of `status` that the doctor has no line for.

    Shadow mode that is on is left out: all parts can be in place meanwhile, and the doctor's last line names it.
    """
    examined = {(seen.component, seen.check) for seen in observations}
    return [one for one in diagnoses if (one.component, one.kind) not in examined and not _is_shadow_on(one)]


def _is_shadow_on(one: Diagnosis) -> bool:
    return (one.component, one.kind) == (SHADOW.component, SHADOW.check) and one.health is Health.PROBLEM


def with_replica_answer(
    observations: Iterable[Observation], diagnoses: Iterable[Diagnosis]
) -> list[Observation]:
    """Give the doctor's line about the replica the words of `status`, which also asks the replica itself.

    The queue alone cannot show whether a replica hangs or is paused, and advice to start a second one would be wrong.
    """
    by_status = {(one.component, one.kind): one for one in diagnoses if one.health is Health.PROBLEM}
    found = by_status.get((SIDECAR.component, SIDECAR.check))
    return [
        replace(seen, what=found.said, fix=found.next_step)
        if found is not None
        and (seen.component, seen.check) == (SIDECAR.component, SIDECAR.check)
        and seen.health is Health.PROBLEM
        else seen
        for seen in observations
    ]


def _say(line: str) -> None:
    typer.echo(line, err=True)


# "ok" alone, below the lines of what is wrong right now, would read as if those were fine.
_MEANS = {
    Health.OK: "all is there that a rescue needs",
    Health.PROBLEM: "a rescue lacks what is listed first",
    Health.UNKNOWN: "whether a rescue would work cannot be told",
}


def _print(observations: list[Observation]) -> None:
    print_table(
        ("STATE", "PART", "CHECK", "WHAT"),
        [(seen.health, seen.component, seen.check, seen.what) for seen in observations],
    )
    # A server that is away is met by ten lines: what to do about it is said once.
    alike: dict[tuple[str, str], list[Observation]] = {}
    for seen in observations:
        if seen.fix is not None:
            alike.setdefault((seen.what, seen.fix), []).append(seen)
    for (what, fix), those in alike.items():
        checks = ", ".join(seen.check for seen in those)
        print(f"\n{checks}: {printable(what)}\n  fix: {printable(fix)}")
        page = page_of(those[0])
        if page is not None and those[0].health is Health.PROBLEM:
            print(f"  read: {page}")
    for seen in observations:
        for note in seen.notes:
            print(f"\nnote on {seen.check}: {printable(note)}")


def print_right_now(diagnoses: list[Diagnosis]) -> None:
    """The ill ones with what to do, the others in one line: whoever wants them in full asks `status`."""
    print("\nright now (`dlq-handler status` tells all of it):")
    for one in diagnoses:
        if one.health is not Health.OK:
            print(f"{SIGNS[one.health]} {one.health}  {one.subject}: {printable(one.said)}")
            print(f"  next: {printable(one.next_step or '-')}\n  read: {one.runbook}")
    fine = ", ".join(one.kind for one in diagnoses if one.health is Health.OK)
    if fine:
        print(f"{SIGNS[Health.OK]} ok: {fine}")
