"""`dlq-handler letters`: what is on record, by letter and by group; one letter in full; exporting and reprocessing."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.letter_options import Wanted, choosing_letters, known
from dlq_handler.cli.letters_export import export
from dlq_handler.cli.letters_groups import groups
from dlq_handler.cli.letters_reprocess import reprocess
from dlq_handler.cli.options import LARGEST_ID, BeforeOption, ConfigOption, Output, OutputOption
from dlq_handler.cli.patience import wait_for
from dlq_handler.cli.printing import print_error, print_json, print_table
from dlq_handler.database.server_sql import read_server
from dlq_handler.dead_letters import records_sql, search_sql
from dlq_handler.dead_letters.filter import LetterPage
from dlq_handler.dead_letters.no_record import no_record_sentence
from dlq_handler.dead_letters.record import LetterRecord
from dlq_handler.dead_letters.state_version import letter_version
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database

app = typer.Typer(no_args_is_help=True)
app.command()(groups)
app.command()(export)
app.command()(reprocess)

LetterId = Annotated[int, typer.Argument(metavar="ID", min=1, max=LARGEST_ID)]


@app.command("list")
@choosing_letters
def list_letters(
    *,
    wanted: Wanted,
    before: BeforeOption = None,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, help="Maximum number of dead letters, newest first.")
    ] = 50,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List dead letters, newest first. Filters are combined with AND."""
    settings = load_or_exit(config).settings
    page, now = wait_for("searching dead letters", _list(settings, wanted, before, limit))
    if output is Output.JSON:
        print_json([brief(record) for record in page.records])
        return
    print_letters(page.records, now)
    if page.older is not None:
        typer.echo(f"there are more: add --before {page.older}", err=True)


def print_letters(records: Sequence[LetterRecord], now: datetime) -> None:
    print_table(
        ("ID", "RECEIVED", "EXECUTION", "WORKER", "ACTION", "QUEUE", "REASON", "OUTCOME", "GROUP", "WHY"),
        [
            (
                record.id,
                record.received_at,
                record.execution_id,
                record.worker_id,
                record.action_ref,
                record.queue,
                record.reason,
                f"{record.outcome} (SHADOW)" if record.is_shadow else record.outcome,
                record.group_id,
                record.error or record.explanation,
            )
            for record in records
        ],
        empty="no dead letters",
        now=now,
        optional=("QUEUE", "WHY", "GROUP", "WORKER"),
    )


@app.command()
def show(
    letter_id: LetterId,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show one dead letter in full, without its body. Secrets in its headers are masked."""
    settings = load_or_exit(config).settings
    record, now = wait_for("reading the dead letter", _show(settings, letter_id))
    if record is None:
        print_error(
            f"{no_record_sentence(settings.retention.resolved_seconds)} "
            "`dlq-handler letters list` lists dead letters."
        )
        raise typer.Exit(1)
    if output is Output.JSON:
        print_json(_full(record))
    else:
        print_table(("FIELD", "VALUE"), list(_full(record).items()), now=now)


async def _list(
    settings: Settings, wanted: Wanted, before_id: int | None, limit: int
) -> tuple[LetterPage, datetime]:
    async with open_database(settings) as database:
        chosen = await known(database, settings, wanted)
        page = await search_sql.search(database, chosen, before_id=before_id, limit=limit)
        return page, (await read_server(database)).now


async def _show(settings: Settings, letter_id: int) -> tuple[LetterRecord | None, datetime]:
    async with open_database(settings) as database:
        record = await records_sql.show(database, letter_id)
        return record, (await read_server(database)).now


def brief(record: LetterRecord) -> dict[str, object]:
    return {
        "id": record.id,
        "message_id": record.message_id,
        "execution_id": record.execution_id,
        "worker_id": record.worker_id,
        "action_ref": record.action_ref,
        "queue": record.queue,
        "reason": record.reason,
        "outcome": record.outcome,
        "group": record.group_id,
        "is_shadow": record.is_shadow,
        "died_at": record.died_at,
        "received_at": record.received_at,
        "explanation": record.explanation,
    }


def _full(record: LetterRecord) -> dict[str, object]:
    fields = {name: getattr(record, name) for name in LetterRecord.__dataclass_fields__}
    del fields["body"]
    return fields | {"headers": record.headers or {}, "version": letter_version(record)}
