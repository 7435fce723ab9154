"""`dlq-handler letters`: dead letters on record, one by one and by group; exporting and reprocessing.

The options choose dead letters. What was named must exist: a mistyped name would be answered with an empty list, which
reads as good news. `export` holds one page in memory, however many there are; bodies only on request, and masked.
"""

import csv
import functools
import inspect
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.exits import EXIT_FAILED
from dlq_handler.cli.letters_groups import expect_group, groups
from dlq_handler.cli.letters_reprocess import reprocess
from dlq_handler.cli.options import (
    LARGEST_ID,
    BeforeOption,
    ConfigOption,
    Output,
    OutputOption,
    SinceOption,
    UntilOption,
    refuse_reversed,
)
from dlq_handler.cli.patience import ask_database, wait_for
from dlq_handler.cli.printing import jsonable, print_error, print_json, print_table, shown
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import records_sql, search_sql
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.group import Category
from dlq_handler.dead_letters.letter import DEATH_REASONS, UNKNOWN_REASON
from dlq_handler.dead_letters.listing import (
    LetterFilter,
    LetterPage,
    LetterRecord,
    letter_version,
    no_record_sentence,
)
from dlq_handler.host.workers_sql import list_workers, worker_names
from dlq_handler.masking import masked, masked_body
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database

app = typer.Typer(no_args_is_help=True)

_COLUMNS = (
    "ID", "RECEIVED", "EXECUTION", "WORKER", "ACTION", "QUEUE", "REASON", "OUTCOME", "GROUP", "EXPLANATION",
)  # fmt: skip
app.command()(groups)
app.command()(reprocess)

LetterId = Annotated[int, typer.Argument(metavar="ID", min=1, max=LARGEST_ID)]


PAGE = 500

_WITHOUT_BODIES = tuple(
    field.name for field in fields(LetterRecord) if field.name not in {"key", "body", "headers"}
)

# What spreadsheets begin to calculate at.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")

Line = dict[str, object]

WANTED = "wanted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """As it was typed. `known` makes a filter of it with the help of the database."""

    letters: LetterFilter
    worker_name: str | None


def _reasons_beginning_with(incomplete: str) -> list[str]:
    """For completion only: a broker may use other reasons."""
    return [reason for reason in (*DEATH_REASONS, UNKNOWN_REASON) if reason.startswith(incomplete)]


def wanted_letters(
    *,
    group: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="Only dead letters of this group (`letters groups`)."),
    ] = None,
    category: Annotated[Category | None, typer.Option(help="Only dead letters of this category.")] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="Only dead letters with this outcome.")] = None,
    reason: Annotated[
        str | None,
        typer.Option(
            autocompletion=_reasons_beginning_with,
            help="Only dead letters with this x-death reason: expired, rejected, maxlen, …",
        ),
    ] = None,
    worker: Annotated[
        str | None,
        typer.Option(metavar="ID|NAME", help="Only dead letters to this worker, by its id or its full name."),
    ] = None,
    action: Annotated[
        str | None, typer.Option(metavar="REF", help="Only dead letters of this action, such as core.http.")
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Only dead letters with this id: of an execution, a dead letter or a message."
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
        raise typer.BadParameter(
            f"{text} is not an id: must be from 1 to {LARGEST_ID}", param_hint="--worker"
        )
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
            f"{len(found)} workers have the name {name}. Give the id of one: {', '.join(map(str, found))}."
        )
    else:
        names = ", ".join(sorted({one.name for one in workers})) or "none"
        print_error(
            f"No worker has the name {name}. Registered: {names}. A deregistered worker has only an id."
        )
    raise typer.Exit(EXIT_FAILED)


@app.command("list")
@choosing_letters
def list_letters(
    *,
    wanted: Wanted,
    before: BeforeOption = None,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, help="Maximum number of dead letters, newest first.")
    ] = 50,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List dead letters, newest first. Filters are combined with AND."""
    settings = load_or_exit(config).settings

    async def search(database: Database) -> LetterPage:
        chosen = await known(database, settings, wanted)
        return await search_sql.search(database, chosen, before_id=before, limit=limit)

    page, now = ask_database("searching dead letters", settings, search)
    if output is Output.JSON:
        print_json([brief(record) for record in page.records])
        return
    print_letters(page.records, now)
    if page.older is not None:
        typer.echo(f"there are more: add --before {page.older}", err=True)


def print_letters(records: Sequence[LetterRecord], now: datetime) -> None:
    print_table(
        _COLUMNS,
        [
            (
                record.id,
                record.received_at,
                record.execution_id,
                record.worker_id,
                record.action_ref,
                record.queue,
                record.reason,
                f"{record.outcome} (SHADOW)" if record.is_shadow else record.outcome,
                record.group_id,
                record.error or record.explanation,
            )
            for record in records
        ],
        empty="no dead letters",
        now=now,
        optional=("QUEUE", "EXPLANATION", "GROUP", "WORKER"),
    )


@app.command()
def show(
    letter_id: LetterId,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show one dead letter in full, without its body. Secrets in its headers are masked."""
    settings = load_or_exit(config).settings
    record, now = ask_database(
        "reading the dead letter", settings, lambda database: records_sql.show(database, letter_id)
    )
    if record is None:
        print_error(
            f"{no_record_sentence(settings.retention.resolved_seconds)} "
            "`dlq-handler letters list` lists dead letters."
        )
        raise typer.Exit(1)
    if output is Output.JSON:
        print_json(_full(record))
    else:
        print_table(("FIELD", "VALUE"), list(_full(record).items()), now=now)


def brief(record: LetterRecord) -> dict[str, object]:
    return {
        "id": record.id,
        "message_id": record.message_id,
        "execution_id": record.execution_id,
        "worker_id": record.worker_id,
        "action_ref": record.action_ref,
        "queue": record.queue,
        "reason": record.reason,
        "outcome": record.outcome,
        "group_id": record.group_id,
        "is_shadow": record.is_shadow,
        "died_at": record.died_at,
        "received_at": record.received_at,
        "explanation": record.explanation,
    }


def _full(record: LetterRecord) -> dict[str, object]:
    fields = {name: getattr(record, name) for name in LetterRecord.__dataclass_fields__}
    del fields["body"]
    return fields | {"headers": record.headers or {}, "version": letter_version(record)}


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"


@app.command()
@choosing_letters
def export(
    *,
    format_: Annotated[
        Format,
        typer.Option(
            "--format",
            help="`jsonl`: one JSON object a line. `csv`: with a header line; text that begins like a formula gets an "
            "apostrophe.",
        ),
    ] = Format.JSONL,
    bodies: Annotated[
        bool,
        typer.Option("--bodies", help="Include headers and body, with secrets masked and long bodies cut."),
    ] = False,
    wanted: Wanted,
    config: ConfigOption = None,
) -> None:
    """Write all matching dead letters to stdout, newest first, one per line."""
    columns = (*_WITHOUT_BODIES, *(("headers", "body", "is_body_cut") if bodies else ()))
    settings, write, written = load_or_exit(config).settings, _writer(format_, columns), 0

    def count(line: Line) -> None:
        nonlocal written
        write(line)
        written += 1

    wait_for(
        "exporting",
        _export(settings, wanted, count, with_bodies=bodies),
        how_far=lambda: f"{written} letters",
    )
    typer.echo(f"{written} letter(s)", err=True)


async def _export(
    settings: Settings, wanted: Wanted, write: Callable[[Line], None], *, with_bodies: bool
) -> None:
    async with open_database(settings) as database:
        chosen = await known(database, settings, wanted)
        async for line in _lines(database, chosen, with_bodies=with_bodies):
            write(line)


async def _lines(database: Database, wanted: LetterFilter, *, with_bodies: bool) -> AsyncIterator[Line]:
    before_id: int | None = None
    while True:
        page = await search_sql.search(database, wanted, before_id=before_id, limit=PAGE)
        contents = (
            await records_sql.contents(database, [record.id for record in page.records])
            if with_bodies
            else {}
        )
        for record in page.records:
            line: Line = {name: getattr(record, name) for name in _WITHOUT_BODIES}
            if with_bodies:
                body, headers = contents.get(record.id, (b"", {}))
                shown_body = masked_body(body, is_text_shown=True)
                line |= {
                    "headers": masked(headers),
                    "body": shown_body.text,
                    "is_body_cut": shown_body.is_cut,
                }
            yield line
        if page.older is None:
            return
        before_id = page.older


def _writer(format_: Format, columns: tuple[str, ...]) -> Callable[[Line], None]:
    if format_ is Format.JSONL:
        return lambda line: print(json.dumps(jsonable(line)))
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(columns)
    return lambda line: rows.writerow([_cell(line[name]) for name in columns])


def _cell(value: object) -> str:
    """Text that a spreadsheet would take for a formula has an apostrophe before it. Numbers stay numbers."""
    text = "" if value is None else shown(value)
    is_number = isinstance(value, int | float)
    return f"'{text}" if text.startswith(_FORMULAS) and not is_number else text
