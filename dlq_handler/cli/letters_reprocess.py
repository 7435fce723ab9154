"""`dlq-handler letters reprocess`: process dead letters on record again. Recorded in the audit, with a comment."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.letters_groups import expect_group
from dlq_handler.cli.open import actor, comment_or_ask, exit_if_refused, open_operations
from dlq_handler.cli.options import (
    LARGEST_ID,
    CommentOption,
    ConfigOption,
    IfVersionOption,
    Output,
    OutputOption,
)
from dlq_handler.cli.patience import wait_for
from dlq_handler.cli.printing import print_error, print_json, print_table, print_warning
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import records_sql, reprocess_sql
from dlq_handler.dead_letters.decision import REPROCESSABLE, Outcome
from dlq_handler.dead_letters.listing import group_version, letters_version
from dlq_handler.operations.operations import Operations
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    letter_ids: Sequence[int] | None
    group: str | None
    outcomes: frozenset[Outcome]
    comment: str
    version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    record_id: int
    execution_id: int | None
    before: Outcome | None
    """None: a replica decided it first."""
    outcome: Outcome
    explanation: str

    @property
    def is_changed(self) -> bool:
        return self.outcome is not self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    decided: Sequence[_Decided]
    undecided: Mapping[int, str]
    left: str | None = None
    """Dead letters beyond the limit of one operation, in words."""

    @property
    def changed(self) -> Sequence[_Decided]:
        return [one for one in self.decided if one.is_changed]

    def __str__(self) -> str:
        said = f"{len(self.decided):,} reprocessed, {len(self.changed):,} changed"
        return f"{said}, {len(self.undecided):,} not decided" if self.undecided else said


def reprocess(
    letter_ids: Annotated[list[int] | None, typer.Argument(metavar="[ID]...", min=1, max=LARGEST_ID)] = None,
    *,
    outcome: Annotated[
        Outcome | None,
        typer.Option(
            help="Only dead letters with this outcome: unknown_execution, update_failed, deferred, unrelated."
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Only dead letters of this group.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All dead letters that can be processed again, at most 10,000.")
    ] = False,
    comment: CommentOption = None,
    version: IfVersionOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Process dead letters again: the named ones, those of a group or with an outcome, or `--all`. Only the outcomes
    unknown_execution, update_failed, deferred and unrelated can change. The audit records user, time and comment.
    At most 10,000 at a time, those decided longest ago first. A terminal lists changed outcomes, a pipe and JSON list
    all; stderr shows the number.

    Exit 1: a dead letter was not processed. If it only has to wait, for example for the brake, a replica does it later.
    """
    _refuse_nonsense(letter_ids, group, outcome, version, every=every)
    settings = load_or_exit(config).settings
    if settings.dlq_handler.shadow.enabled:
        print_error("in shadow mode no dead letter is reprocessed; see dlq_handler.shadow.enabled")
        raise typer.Exit(1)
    if version is None:
        # The present state: what another operator changes while the comment is typed must not be acted on.
        version = wait_for("reading the dead letters", _version(settings, letter_ids, group))
    wanted = _Wanted(
        letter_ids=letter_ids,
        group=group,
        outcomes=REPROCESSABLE if outcome is None else frozenset({outcome}),
        comment=comment_or_ask(comment),
        version=version,
    )
    with exit_if_refused():
        done = wait_for("reprocessing dead letters", _reprocess(settings, wanted))
    for letter_id, explanation in done.undecided.items():
        print_warning(f"dead letter {letter_id} was not decided: {explanation}")
    if output is Output.JSON:
        print_json(done.decided)
    else:
        _print(done)
    if done.decided or done.undecided:
        typer.echo(str(done), err=True)
    if done.left is not None:
        print_warning(f"left: {done.left}, too many for one operation; run the command again for them")
    if done.undecided or done.left is not None:
        raise typer.Exit(1)


def _print(done: _Done) -> None:
    rows = done.decided
    if sys.stdout.isatty() and (done.decided or done.undecided):
        # Hundreds of unchanged outcomes would hide the few changed ones.
        rows = done.changed
        if not rows:
            return
    print_table(
        ("ID", "EXECUTION", "BEFORE", "OUTCOME", "EXPLANATION"),
        [(one.record_id, one.execution_id, one.before, one.outcome, one.explanation) for one in rows],
        empty="no dead letter to reprocess",
    )


def _refuse_nonsense(
    letter_ids: list[int] | None,
    group: str | None,
    outcome: Outcome | None,
    version: str | None,
    *,
    every: bool,
) -> None:
    if outcome is not None and outcome not in REPROCESSABLE:
        raise typer.BadParameter(
            f"{outcome.value} is final; these can be reprocessed: {', '.join(sorted(REPROCESSABLE))}"
        )
    given = sum(one is not None for one in (letter_ids or None, group, outcome, every or None))
    if given > 1:
        raise typer.BadParameter("Give ids, --group, --outcome or --all: only one of them.")
    if given == 0:
        # `--comment expired` resembles a filter and is none: without this it would process every dead letter again.
        raise typer.BadParameter("Nothing selected. Give ids, --group, --outcome or --all.")
    if version is not None and not letter_ids and group is None:
        raise typer.BadParameter("needs ids or --group", param_hint="--if-version")


async def _version(settings: Settings, letter_ids: list[int] | None, group: str | None) -> str | None:
    """None: all there are were asked for, whatever they are by then."""
    async with open_database(settings) as database:
        if group is not None:
            await expect_group(database, settings, group)
            async with database.transaction() as tx:
                return group_version((await reprocess_sql.read_group_state(tx, group)).digest)
        if letter_ids:
            async with database.transaction() as tx:
                return letters_version(await reprocess_sql.states_of(tx, letter_ids))
    return None


async def _reprocess(settings: Settings, wanted: _Wanted) -> _Done:
    async with open_operations(settings) as (operating, database):
        return await _queue_reprocessing(operating, database, wanted)


async def _queue_reprocessing(operating: Operations, database: Database, wanted: _Wanted) -> _Done:
    named, left = wanted.letter_ids, None
    if wanted.group is None and not named:
        # One more than is queued, to know whether there are more.
        found = await reprocess_sql.reprocessable(
            database, wanted.outcomes, limit=reprocess_sql.MOST_QUEUED + 1
        )
        named, left = (
            found[: reprocess_sql.MOST_QUEUED],
            "some" if len(found) > reprocess_sql.MOST_QUEUED else None,
        )
        if not named:
            # Nothing was done, so nothing goes on record.
            return _Done(decided=(), undecided={})
    result = await operating.reprocess(
        actor(), letter_ids=named, group=wanted.group, comment=wanted.comment, version=wanted.version
    )
    if result.left.count:
        left = str(result.left)
    decided = [_Decided(**asdict(one)) for one in result.decided]
    undecided = dict(result.refused)
    for letter_id, explanation in result.waiting.items():
        record = await records_sql.show(database, letter_id)
        if record is None or record.outcome in REPROCESSABLE:
            undecided[letter_id] = f"{explanation}; it is queued for reprocessing"
            continue
        # Queued for every replica too: one of them decided it first.
        decided.append(
            _Decided(
                record_id=letter_id,
                execution_id=record.execution_id,
                before=None,
                outcome=record.outcome,
                explanation=record.explanation,
            )
        )
    return _Done(decided=decided, undecided=undecided, left=left)
