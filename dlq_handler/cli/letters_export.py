"""`dlq-handler letters export`: all letters that were asked for, one a line, page by page.

Promises: memory holds one page, however many letters there are; bodies only on request, and masked even then.
"""

import csv
import json
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import fields
from enum import StrEnum
from typing import Annotated

import typer

from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.letter_options import Wanted, choosing_letters, known
from dlq_handler.cli.options import ConfigOption
from dlq_handler.cli.patience import wait_for
from dlq_handler.cli.printing import jsonable, shown
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import records_sql, search_sql
from dlq_handler.dead_letters.filter import LetterFilter
from dlq_handler.dead_letters.record import LetterRecord
from dlq_handler.masking import masked, masked_body
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database

PAGE = 500

_WITHOUT_BODIES = tuple(
    field.name for field in fields(LetterRecord) if field.name not in {"key", "body", "headers"}
)

# What spreadsheets begin to calculate at.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")

Line = dict[str, object]


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"


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
