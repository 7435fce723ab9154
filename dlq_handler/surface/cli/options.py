"""Options that several commands share, so that they are spelt and explained the same everywhere."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


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
