"""`dlq-handler doctor`: everything that a rescue depends on, looked at once, each line with what to do about it."""

import asyncio
from typing import Annotated

import typer

from dlq_handler.compose.doctor import open_doctor
from dlq_handler.domain.diagnosis import page_of
from dlq_handler.domain.observation import Health, Observation, conclude, worst_first
from dlq_handler.settings import Loaded
from dlq_handler.surface.cli.config import load_or_exit
from dlq_handler.surface.cli.options import ConfigOption, Output, OutputOption
from dlq_handler.surface.cli.printing import jsonable, print_json, print_table, printable

# As those of `topology check`.
EXIT_CODES = {Health.OK: 0, Health.PROBLEM: 1, Health.CANNOT_TELL: 2}


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

    Exit 0: all is well. Exit 1: something is wrong. Exit 2: something cannot be told. Works with servers down.
    """
    observations = worst_first(asyncio.run(_examine(load_or_exit(config), canary)))
    conclusion = conclude(observations)
    if output is Output.JSON:
        told = [jsonable(seen) | {"runbook": page_of(seen)} for seen in observations]
        print_json({"conclusion": conclusion, "observations": told})
    else:
        _print(observations, conclusion)
    raise typer.Exit(EXIT_CODES[conclusion])


async def _examine(loaded: Loaded, with_canary: bool) -> list[Observation]:
    async with open_doctor(
        loaded.settings, warnings=loaded.warnings, with_canary=with_canary, say=_say
    ) as opened:
        return await opened.examine()


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _print(observations: list[Observation], conclusion: Health) -> None:
    print_table(
        ("STATE", "PART", "CHECK", "WHAT"),
        [(seen.health, seen.part, seen.check, seen.what) for seen in observations],
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
    print(f"\nconclusion: {conclusion}")
