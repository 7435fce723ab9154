"""The options by which letters are chosen, the same for listing and for exporting them, and for a link's query."""

from typing import Annotated

import typer

from dlq_handler.domain.letter_group import Cause
from dlq_handler.domain.verdict import Outcome
from dlq_handler.surface.cli.options import LARGEST_ID

GroupOption = Annotated[
    str | None,
    typer.Option("--group", metavar="GROUP", help="Only letters of this group (`letters groups`)."),
]
CauseOption = Annotated[Cause | None, typer.Option("--cause", help="Only letters that came for this cause.")]
OutcomeOption = Annotated[Outcome | None, typer.Option("--outcome", help="Only letters with this outcome.")]
DeathOption = Annotated[
    str | None,
    typer.Option("--reason", help="Only letters that died of this: expired, rejected, maxlen, …"),
]
WorkerOption = Annotated[
    int | None,
    typer.Option("--worker", metavar="ID", min=1, max=LARGEST_ID, help="Only letters to this worker."),
]
ActionOption = Annotated[
    str | None,
    typer.Option("--action", metavar="REF", help="Only letters of this action, such as core.http."),
]
SearchOption = Annotated[
    str | None,
    typer.Option(
        "--search", metavar="ID", help="Only letters with this id: an execution's, a letter's, a message's."
    ),
]
