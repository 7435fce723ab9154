"""Options that several commands share, so that they are spelt and explained the same everywhere."""

import re
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration(text: str) -> timedelta | None:
    """`90s`, `30m`, `24h`, `7d`; None for anything else."""
    match = re.fullmatch(r"(\d{1,6})([smhd])", text)
    return timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else None


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
