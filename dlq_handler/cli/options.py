"""Options that several commands share, so that they are spelt, read and explained the same everywhere."""

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dlq_handler.cli.printing import utc

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration(text: str) -> timedelta | None:
    """`90s`, `30m`, `24h`, `7d`; None for anything else."""
    match = re.fullmatch(r"(\d{1,6})([smhd])", text)
    return timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else None


def read_duration(text: str) -> timedelta:
    given = duration(text)
    if given is None:
        raise typer.BadParameter(f"{text!r} is not a duration; use 90s, 10m, 2h or 1d")
    return given


def read_moment(text: str) -> datetime:
    """`30m`, `24h`, `7d` ago, or an ISO 8601 time, which means UTC unless it says otherwise."""
    if (back := duration(text)) is not None:
        return datetime.now(UTC) - back
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a time; use 30m, 24h, 7d or 2026-11-16T12:00:00Z"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# Two that count back from now are read a moment apart: without it, `--since 1h --until 1h` would be a window.
_SHORTEST_WINDOW = timedelta(seconds=1)


def refuse_reversed(since: datetime | None, until: datetime | None) -> None:
    """Such a window is always empty, and "no dead letters" reads as good news."""
    if since is not None and until is not None and until - since < _SHORTEST_WINDOW:
        raise typer.BadParameter(
            f"{utc(since)} is not before --until, {utc(until)}: nothing is between them", param_hint="--since"
        )


class Output(StrEnum):
    """For people or for programs."""

    TEXT = "text"
    JSON = "json"


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="PATH",
        help="Read only this file. Otherwise $ATTUNE_CONFIG, else config.yaml and config.{environment}.yaml.",
    ),
]

OutputOption = Annotated[
    Output,
    typer.Option(
        "--output", help="`text` for people, `json` for programs (lists are arrays, times ISO 8601 in UTC)."
    ),
]

SinceOption = Annotated[
    datetime | None,
    typer.Option(
        parser=read_moment,
        metavar="30m|24h|7d|TIME",
        help="Only from this time on: an age such as 30m, or a time in UTC.",
    ),
]

UntilOption = Annotated[
    datetime | None,
    typer.Option(
        parser=read_moment,
        metavar="30m|24h|7d|TIME",
        help="Only before this time: an age such as 30m, or a time in UTC.",
    ),
]

LARGEST_ID = 2**63 - 1

BeforeOption = Annotated[
    int | None,
    typer.Option(
        "--before", metavar="ID", min=1, max=LARGEST_ID, help="Only records before this id: the next page."
    ),
]

CommentOption = Annotated[
    str | None,
    typer.Option(
        "--comment",
        help="Comment for the audit. Required; on a terminal you are asked for it.",
    ),
]

IfVersionOption = Annotated[
    str | None,
    typer.Option(
        "--if-version",
        help="Expected state, as `brake status`, `letters show` or `letters groups` prints it with --output json. "
        "The command is refused if the state has changed since.",
    ),
]

OptionalCommentOption = Annotated[str | None, typer.Option("--comment", help="Comment for the audit.")]
