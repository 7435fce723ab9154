"""Who types, and why: what the audit gets to know of a command that changes something."""

import getpass
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from dlq_handler.cli.printing import print_error
from dlq_handler.operations.operation import Via
from dlq_handler.operations.operations import LONGEST_REASON, Actor, Changed, Impossible


def operator() -> str:
    """Who asks, for the record. A container may run us as a user without a name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def actor() -> Actor:
    return Actor(who=operator(), via=Via.CLI)


def reason_or_ask(given: str | None) -> str:
    """A person is asked; a script has to say it, or its act would be on record without a reason."""
    if given is None and sys.stdin.isatty() and sys.stdout.isatty():
        given = typer.prompt("Why? (for the audit)")
    reason = (given or "").strip()
    if not reason:
        raise typer.BadParameter("say why, for the audit: --reason TEXT", param_hint="--reason")
    if len(reason) > LONGEST_REASON:
        raise typer.BadParameter(
            f"has {len(reason)} characters; wanted at most {LONGEST_REASON}", param_hint="--reason"
        )
    return reason


@contextmanager
def refused_in_words() -> Iterator[None]:
    """What may not be done as things are ends in one line and exit code 1."""
    try:
        yield
    except (Changed, Impossible) as refused:
        print_error(str(refused))
        raise typer.Exit(1) from None
