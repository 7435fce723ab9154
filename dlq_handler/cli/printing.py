"""Print the result of a command: fitted to a terminal, or in a pipe as lines of fields separated by tabs.

Text from outside (queue names, errors) may hold control characters: they are shown escaped, never sent to the
terminal. So no field holds a tab or a line break, and a program may split by them.
"""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic_core import to_jsonable_python

from dlq_handler.text import in_units

# Maximum difference of two clocks: a time less than this ahead is not in the future.
_SLACK_SECONDS = 5.0


def utc(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def with_age(when: datetime, now: datetime) -> str:
    """`2026-03-01T02:26:00Z (32 min ago)`, or `(in 2 h)`."""
    seconds = (now - when).total_seconds()
    age = f"in {in_units(-seconds)}" if seconds <= -_SLACK_SECONDS else f"{in_units(max(0.0, seconds))} ago"
    return f"{utc(when)} ({age})"


def print_json(value: object) -> None:
    """Datetimes become ISO 8601 in UTC, dataclasses objects, secrets redacted. ASCII: any pipe takes it."""
    print(json.dumps(jsonable(value), indent=2))


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    empty: str = "nothing found",
    now: datetime | None = None,
    optional: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> None:
    """`now`: the database's time. With it, each time has its age on a terminal.

    `optional`: columns to leave out, in this order, on a terminal that is too narrow for all. `whole`: columns that are
    never folded, so that they can be copied.
    """
    if sys.stdout.isatty():
        if not rows:
            print(empty)
        else:
            _print_fitted(columns, rows, now, optional, whole)
        return
    print("\t".join(columns))
    for row in rows:
        print("\t".join(shown(value) for value in row))
    if not rows:
        # On stderr: a program that reads the lines would take it for one.
        print(empty, file=sys.stderr)


def _print_fitted(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    now: datetime | None,
    optional: Sequence[str],
    whole: Sequence[str],
) -> None:
    # Only a terminal needs rich, which takes as long to import as a command to run.
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console()
    cells = [[shown(value, now=now) for value in row] for row in rows]
    kept = fitting(columns, cells, optional=optional, width=console.width)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for place in kept:
        table.add_column(columns[place], no_wrap=columns[place] in whole)
    for row in cells:
        table.add_row(*(Text(row[place], overflow="fold") for place in kept))
    console.print(table)
    if left_out := [name for place, name in enumerate(columns) if place not in kept]:
        print(f"columns not shown, the terminal is too narrow: {', '.join(left_out)}", file=sys.stderr)


def fitting(
    columns: Sequence[str], cells: Sequence[Sequence[str]], *, optional: Sequence[str], width: int
) -> list[int]:
    """The indexes of the columns to show. A worker's name folded to a few characters is unreadable."""
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    kept = list(range(len(columns)))
    for name in optional:
        if sum(widths[place] + 2 for place in kept) <= width:
            break
        kept.remove(columns.index(name))
    return kept


def print_progress(line: str) -> None:
    """On stderr: stdout holds the result alone."""
    print(line, file=sys.stderr, flush=True)


def print_error(message: str) -> None:
    """To stderr, one line per problem, in red on a terminal."""
    _print_on_stderr(printable(message), style="red")


def print_warning(message: str) -> None:
    _print_on_stderr(f"warning: {printable(message)}", style="yellow")


def _print_on_stderr(text: str, *, style: str) -> None:
    if not sys.stderr.isatty():
        print(text, file=sys.stderr)
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    Console(stderr=True, soft_wrap=True, highlight=False).print(Text(text, style=style))


def shown(value: object, *, now: datetime | None = None) -> str:
    """One field: a dash for None, times in UTC, with how long ago if `now` is known, lists with commas."""
    if isinstance(value, datetime) and now is not None:
        return with_age(value, now)
    match jsonable(value):
        case None:
            return "-"
        case bool(value):
            return str(value).lower()
        case float(value):
            return f"{value:g}"
        case list(items):
            return ", ".join(shown(item) for item in items)
        case dict(items):
            return printable(json.dumps(items))
        case other:
            return printable(str(other))


def printable(text: str) -> str:
    """Control characters and lone surrogates as `\\x1b`: a queue's name must not drive the terminal."""
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def jsonable(value: object) -> Any:
    return to_jsonable_python(value, fallback=str, bytes_mode="hex")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
