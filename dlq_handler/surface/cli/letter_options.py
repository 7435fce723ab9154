"""The options by which letters are chosen: declared once, for listing and for exporting them."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from dlq_handler.domain.dead_letter import DEATH_REASONS, UNKNOWN_REASON
from dlq_handler.domain.letter_filter import LetterFilter
from dlq_handler.domain.letter_group import Cause
from dlq_handler.domain.verdict import Outcome
from dlq_handler.surface.cli.options import LARGEST_ID, SinceOption, UntilOption, refuse_reversed

WANTED = "wanted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """As it was typed. `known_letters.known` makes a filter of it, for which the database has to be asked."""

    letters: LetterFilter
    worker_name: str | None


def _reasons_beginning_with(incomplete: str) -> list[str]:
    """To complete by, not to refuse by: a broker may know more of them."""
    return [reason for reason in (*DEATH_REASONS, UNKNOWN_REASON) if reason.startswith(incomplete)]


def wanted_letters(
    *,
    group: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="Only letters of this group (`letters groups`)."),
    ] = None,
    cause: Annotated[Cause | None, typer.Option(help="Only letters that came for this cause.")] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="Only letters with this outcome.")] = None,
    reason: Annotated[
        str | None,
        typer.Option(
            autocompletion=_reasons_beginning_with,
            help="Only letters that died of this: expired, rejected, maxlen, …",
        ),
    ] = None,
    worker: Annotated[
        str | None,
        typer.Option(metavar="ID|NAME", help="Only letters to this worker, by its id or its whole name."),
    ] = None,
    action: Annotated[
        str | None, typer.Option(metavar="REF", help="Only letters of this action, such as core.http.")
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Only letters with this id: an execution's, a letter's, a message's."
        ),
    ] = None,
) -> Wanted:
    refuse_reversed(since, until)
    worker_id = _worker_id(worker or "")
    chosen = LetterFilter(
        group=group,
        cause=cause,
        outcome=outcome,
        reason=reason,
        worker_id=worker_id,
        action=action,
        since=since,
        until=until,
        search=search,
    )
    return Wanted(letters=chosen, worker_name=worker if worker_id is None else None)


def _worker_id(text: str) -> int | None:
    """None: it is a name."""
    if not (text.isascii() and text.isdigit()):
        return None
    if len(text) > len(str(LARGEST_ID)) or not 1 <= int(text) <= LARGEST_ID:
        raise typer.BadParameter(f"{text} is no id: they go from 1 to {LARGEST_ID}", param_hint="--worker")
    return int(text)


def choosing_letters(command: Callable[..., None]) -> Callable[..., None]:
    """A command that has the options of `wanted_letters` in the place of its parameter `wanted`, made of them.

    typer reads the options of a command off its signature, so this gives it one with all of them.
    """
    options = inspect.signature(wanted_letters).parameters
    parameters: list[inspect.Parameter] = []
    for one in inspect.signature(command).parameters.values():
        parameters += options.values() if one.name == WANTED else [one]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in options}
        command(**given, **{WANTED: wanted_letters(**chosen)})

    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect looks for it
    return with_options
