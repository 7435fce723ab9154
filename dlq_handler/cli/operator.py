"""What the audit records of a command that changes something: the user and the comment."""

import getpass
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from dlq_handler.cli.printing import print_error
from dlq_handler.operations.operation import Actor, Client
from dlq_handler.operations.operations import LONGEST_COMMENT, Changed, Impossible


def actor() -> Actor:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run the command as a user without a name.
        user = f"uid {os.getuid()}"
    return Actor(username=f"{user}@{socket.gethostname()}", client=Client.CLI)


def comment_or_ask(given: str | None) -> str:
    """A person is asked for it; a script must pass it."""
    if given is None and sys.stdin.isatty() and sys.stdout.isatty():
        given = typer.prompt("Comment for the audit")
    comment = (given or "").strip()
    if not comment:
        raise typer.BadParameter("add --comment TEXT, for the audit", param_hint="--comment")
    if len(comment) > LONGEST_COMMENT:
        raise typer.BadParameter(
            f"has {len(comment)} characters; at most {LONGEST_COMMENT} are allowed", param_hint="--comment"
        )
    return comment


@contextmanager
def exit_if_refused() -> Iterator[None]:
    """An operation that is refused ends the command with one line and exit code 1."""
    try:
        yield
    except (Changed, Impossible) as refused:
        print_error(str(refused))
        raise typer.Exit(1) from None
