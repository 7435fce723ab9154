"""`dlq-handler letters`: what is on record, one letter in full, and judging kept letters again."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from dlq_handler import compose
from dlq_handler.domain.letter_record import LetterRecord
from dlq_handler.domain.verdict import REJUDGEABLE, Outcome
from dlq_handler.services.judge_letters import LetterJudge
from dlq_handler.services.observer import Observer
from dlq_handler.services.rejudge import Rejudged, Rejudger
from dlq_handler.settings import Settings
from dlq_handler.store import letters
from dlq_handler.surface.cli.config import load_or_exit
from dlq_handler.surface.cli.options import ConfigOption, Output, OutputOption, duration
from dlq_handler.surface.cli.printing import print_error, print_json, print_table, print_warning

app = typer.Typer(no_args_is_help=True, help="Dead letters on record.")

LARGEST_ID = 2**63 - 1
LetterId = Annotated[int, typer.Argument(metavar="ID", min=1, max=LARGEST_ID)]


def read_since(text: str) -> datetime:
    """`30m`, `24h`, `7d`, or an ISO 8601 time, which means UTC unless it says otherwise."""
    if (back := duration(text)) is not None:
        return datetime.now(UTC) - back
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is no time; wanted 30m, 24h, 7d or 2026-11-16T12:00:00Z"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@app.command("list")
def list_letters(
    *,
    outcome: Annotated[Outcome | None, typer.Option(help="Only letters with this outcome.")] = None,
    reason: Annotated[
        str | None, typer.Option(help="Only letters that died of this: expired, rejected, maxlen, …")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(parser=read_since, metavar="30m|24h|7d|TIME", help="Only letters received since."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, newest first.")] = 50,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List letters, newest first."""
    records = asyncio.run(_list(load_or_exit(config).settings, outcome, reason, since, limit))
    if output is Output.JSON:
        print_json([_brief(record) for record in records])
        return
    print_table(
        ("ID", "RECEIVED", "EXECUTION", "QUEUE", "REASON", "OUTCOME", "WHY"),
        [
            (
                record.id,
                record.received_at,
                record.execution_id,
                record.queue,
                record.reason,
                f"{record.outcome} (SHADOW)" if record.is_shadow else record.outcome,
                record.error or record.why,
            )
            for record in records
        ],
        empty="no letters",
    )


@app.command()
def show(
    letter_id: LetterId,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show one letter in full. Its body is left out, as it may hold secrets; its size is shown."""
    record = asyncio.run(_show(load_or_exit(config).settings, letter_id))
    if record is None:
        print_error(f"no letter {letter_id} on record; `dlq-handler letters list` shows what is there")
        raise typer.Exit(1)
    if output is Output.JSON:
        print_json(_full(record))
    else:
        print_table(("FIELD", "VALUE"), list(_full(record).items()))


@app.command()
def rejudge(
    letter_ids: Annotated[list[int] | None, typer.Argument(metavar="[ID]...", min=1, max=LARGEST_ID)] = None,
    outcome: Annotated[
        Outcome | None,
        typer.Option(help="Only letters with this outcome: unknown_execution, update_failed, foreign."),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Judge kept letters again: the named ones, or all that are unknown_execution, update_failed or foreign."""
    if outcome is not None and outcome not in REJUDGEABLE:
        raise typer.BadParameter(
            f"{outcome.value} is settled for good; these can be judged again: {', '.join(sorted(REJUDGEABLE))}"
        )
    outcomes = REJUDGEABLE if outcome is None else frozenset({outcome})
    settings = load_or_exit(config).settings
    if settings.dlq_handler.shadow.enabled:
        print_error(
            "in shadow mode nothing is ended, so nothing is judged again; see dlq_handler.shadow.enabled"
        )
        raise typer.Exit(1)
    results, passed_over = asyncio.run(_rejudge(settings, letter_ids, outcomes))
    for letter_id, why in passed_over.items():
        print_warning(f"letter {letter_id} was not judged: {why}")
    if output is Output.JSON:
        print_json(results)
        _fail_if(letter_ids and passed_over)
        return
    print_table(
        ("ID", "EXECUTION", "BEFORE", "OUTCOME", "WHY"),
        [(one.record_id, one.execution_id, one.before, one.outcome, one.why) for one in results],
        empty="no letter to judge again",
    )
    _fail_if(letter_ids and passed_over)


def _fail_if(problem: object) -> None:
    """A letter that was named and not judged is a failure; a script must see it."""
    if problem:
        raise typer.Exit(1)


async def _list(
    settings: Settings, outcome: Outcome | None, reason: str | None, since: datetime | None, limit: int
) -> Sequence[LetterRecord]:
    async with compose.open_database(settings) as database:
        return await letters.list_letters(database, outcome=outcome, reason=reason, since=since, limit=limit)


async def _show(settings: Settings, letter_id: int) -> LetterRecord | None:
    async with compose.open_database(settings) as database:
        return await letters.show(database, letter_id)


async def _rejudge(
    settings: Settings, letter_ids: Sequence[int] | None, outcomes: frozenset[Outcome]
) -> tuple[list[Rejudged], dict[int, str]]:
    """What became of the letters, and why others were passed over."""
    async with compose.open_database(settings) as database:
        policy = compose.judge_policy(settings, compose.lease_holder(settings))
        judge = LetterJudge(
            database,
            policy,
            brake=compose.brake(settings, database),
            gate=compose.gate(settings, database),
            observer=Observer(),
        )
        rejudger = Rejudger(database, judge, relay=None, observer=Observer())
        wanted = letter_ids or await letters.rejudgeable(database, outcomes)
        judged = {letter_id: await rejudger.rejudge(letter_id) for letter_id in wanted}
        passed_over = {
            letter_id: _why_passed_over(await letters.show(database, letter_id))
            for letter_id, one in judged.items()
            if one is None
        }
    return [one for one in judged.values() if one], passed_over


def _why_passed_over(record: LetterRecord | None) -> str:
    if record is None:
        return "there is no such letter on record"
    if record.is_shadow:
        return "it is a record of shadow mode; the letter itself went another way"
    if record.outcome not in REJUDGEABLE:
        return f"{record.outcome.value} is settled for good"
    return "its record or its execution is locked by somebody just now, or the brake has no room for it; try again"


def _brief(record: LetterRecord) -> dict[str, object]:
    return {
        "id": record.id,
        "message_id": record.message_id,
        "execution_id": record.execution_id,
        "queue": record.queue,
        "reason": record.reason,
        "outcome": record.outcome,
        "is_shadow": record.is_shadow,
        "died_at": record.died_at,
        "received_at": record.received_at,
        "why": record.why,
    }


def _full(record: LetterRecord) -> dict[str, object]:
    fields = {name: getattr(record, name) for name in LetterRecord.__dataclass_fields__}
    del fields["body"]
    return fields
