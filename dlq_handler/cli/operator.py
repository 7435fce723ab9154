"""Who types, and why: what the audit gets to know of a command that changes something."""

import getpass
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from dlq_handler.cli.printing import print_error
from dlq_handler.operations.operation import Client
from dlq_handler.operations.operations import LONGEST_COMMENT, Actor, Changed, Impossible


def operator() -> str:
    """Who asks, for the record. A container may run us as a user without a name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def actor() -> Actor:
    return Actor(username=operator(), client=Client.CLI)


def comment_or_ask(given: str | None) -> str:
    """A person is asked; a script has to say it, or its act would be on record without a reason."""
    if given is None and sys.stdin.isatty() and sys.stdout.isatty():
        given = typer.prompt("Why? (for the audit)")
    comment = (given or "").strip()
    if not comment:
        raise typer.BadParameter("say why, for the audit: --comment TEXT", param_hint="--comment")
    if len(comment) > LONGEST_COMMENT:
        raise typer.BadParameter(
            f"has {len(comment)} characters; wanted at most {LONGEST_COMMENT}", param_hint="--comment"
        )
    return comment


@contextmanager
def refused_in_words() -> Iterator[None]:
    """What may not be done as things are ends in one line and exit code 1."""
    try:
        yield
    except (Changed, Impossible) as refused:
        print_error(str(refused))
        raise typer.Exit(1) from None
