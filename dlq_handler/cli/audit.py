"""`dlq-handler audit`: operations, by whom, when and why. Reads only."""

from functools import partial
from typing import Annotated

import typer

from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.options import BeforeOption, ConfigOption, Output, OutputOption, SinceOption
from dlq_handler.cli.patience import ask_database
from dlq_handler.cli.printing import print_json, print_table
from dlq_handler.operations.audit_sql import list_operations
from dlq_handler.operations.operation import Action

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _audit() -> None:
    """Without a callback, typer makes a group with one command that command."""


@app.command("list")
def list_all(
    *,
    action: Annotated[Action | None, typer.Option(help="Only this action.")] = None,
    username: Annotated[
        str | None, typer.Option(help="Only by this user: the name of a token, or user@host.")
    ] = None,
    since: SinceOption = None,
    before: BeforeOption = None,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, help="Maximum number of operations, newest first.")
    ] = 50,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List operations by command, API and dashboard, newest first."""
    asked = partial(
        list_operations,
        before_id=before,
        limit=limit,
        action=None if action is None else action.value,
        username=username,
        since=since,
    )
    operations, now = ask_database("reading the audit", load_or_exit(config).settings, asked)
    if output is Output.JSON:
        print_json(operations)
        return
    is_all = all(given is None for given in (action, username, since, before))
    print_table(
        ("ID", "AT", "USER", "CLIENT", "ACTION", "TARGET", "COMMENT", "RESULT"),
        [
            (one.id, one.at, one.username, one.client, one.action, one.target, one.comment, one.result)
            for one in operations
        ],
        empty="no operations recorded" if is_all else "no such operations recorded",
        now=now,
    )
