"""The dead letters that a command is about: the options that choose them, and the check that what was named exists.

A mistyped name would be answered with an empty list, which reads as good news.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from dlq_handler.cli.exits import EXIT_FAILED
from dlq_handler.cli.options import LARGEST_ID, SinceOption, UntilOption, refuse_reversed
from dlq_handler.cli.printing import print_error
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import groups_sql, search_sql
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.filter import LetterFilter
from dlq_handler.dead_letters.group import Category
from dlq_handler.dead_letters.letter import DEATH_REASONS, UNKNOWN_REASON
from dlq_handler.dead_letters.no_record import no_record_sentence
from dlq_handler.host.workers_sql import list_workers, worker_names
from dlq_handler.settings import Settings

WANTED = "wanted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """As it was typed. `known` makes a filter of it, for which the database has to be asked."""

    letters: LetterFilter
    worker_name: str | None


def _reasons_beginning_with(incomplete: str) -> list[str]:
    """To complete by, not to refuse by: a broker may know more of them."""
    return [reason for reason in (*DEATH_REASONS, UNKNOWN_REASON) if reason.startswith(incomplete)]


def wanted_letters(
    *,
    group: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="Only letters of this group (`letters groups`)."),
    ] = None,
    category: Annotated[Category | None, typer.Option(help="Only letters that came for this cause.")] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="Only letters with this outcome.")] = None,
    reason: Annotated[
        str | None,
        typer.Option(
            autocompletion=_reasons_beginning_with,
            help="Only letters that died of this: expired, rejected, maxlen, …",
        ),
    ] = None,
    worker: Annotated[
        str | None,
        typer.Option(metavar="ID|NAME", help="Only dead letters to this worker, by its id or its full name."),
    ] = None,
    action: Annotated[
        str | None, typer.Option(metavar="REF", help="Only letters of this action, such as core.http.")
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Only letters with this id: an execution's, a letter's, a message's."
        ),
    ] = None,
) -> Wanted:
    refuse_reversed(since, until)
    worker_id = _worker_id(worker or "")
    chosen = LetterFilter(
        group=group,
        category=category,
        outcome=outcome,
        reason=reason,
        worker_id=worker_id,
        action=action,
        since=since,
        until=until,
        search=search,
    )
    return Wanted(letters=chosen, worker_name=worker if worker_id is None else None)


def _worker_id(text: str) -> int | None:
    """None: it is a name."""
    if not (text.isascii() and text.isdigit()):
        return None
    if len(text) > len(str(LARGEST_ID)) or not 1 <= int(text) <= LARGEST_ID:
        raise typer.BadParameter(f"{text} is no id: they go from 1 to {LARGEST_ID}", param_hint="--worker")
    return int(text)


def choosing_letters(command: Callable[..., None]) -> Callable[..., None]:
    """A command that has the options of `wanted_letters` in the place of its parameter `wanted`, made of them.

    typer reads the options of a command off its signature, so this gives it one with all of them.
    """
    options = inspect.signature(wanted_letters).parameters
    parameters: list[inspect.Parameter] = []
    for one in inspect.signature(command).parameters.values():
        parameters += options.values() if one.name == WANTED else [one]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in options}
        command(**given, **{WANTED: wanted_letters(**chosen)})

    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
    return with_options


async def known(database: Database, settings: Settings, wanted: Wanted) -> LetterFilter:
    """Exit with an error for an unknown group, worker name or worker id."""
    if wanted.letters.group is not None:
        await expect_group(database, settings, wanted.letters.group)
    if wanted.letters.worker_id is not None:
        await _expect_worker(database, settings, wanted.letters.worker_id)
    if wanted.worker_name is None:
        return wanted.letters
    return replace(wanted.letters, worker_id=await _worker_named(database, wanted.worker_name))


async def expect_group(database: Database, settings: Settings, group_id: str) -> None:
    if await groups_sql.group(database, group_id) is not None:
        return
    print_error(
        f"{no_record_sentence(settings.retention.longest_seconds)} "
        "`dlq-handler letters groups --since 7d` lists groups."
    )
    raise typer.Exit(EXIT_FAILED)


async def _expect_worker(database: Database, settings: Settings, worker_id: int) -> None:
    """A deregistered worker is known by its dead letters."""
    if worker_id in await worker_names(database):
        return
    if (await search_sql.count(database, LetterFilter(worker_id=worker_id), cap=1)).count:
        return
    print_error(
        f"{no_record_sentence(settings.retention.resolved_seconds)} "
        f"Worker {worker_id} is not registered; `dlq-handler workers list` lists workers."
    )
    raise typer.Exit(EXIT_FAILED)


async def _worker_named(database: Database, name: str) -> int:
    workers = await list_workers(database)
    found = [one.worker.id for one in workers if one.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        print_error(
            f"{len(found)} workers are called {name}; name one by its id: {', '.join(map(str, found))}"
        )
    else:
        names = ", ".join(sorted({one.name for one in workers})) or "none"
        print_error(
            f"no worker is called {name}; there are: {names}. One that is deregistered is known by its id alone"
        )
    raise typer.Exit(EXIT_FAILED)
