"""`dlq-handler executions`: the story of one execution. Reads only."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated

import typer

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.open import observe_worker_queues
from dlq_handler.cli.options import LARGEST_ID, ConfigOption, Output, OutputOption
from dlq_handler.cli.patience import wait_for
from dlq_handler.cli.printing import print_error, print_json, print_warning, printable, shown
from dlq_handler.dead_letters.listing import no_record_sentence
from dlq_handler.explain.explain import Explanation
from dlq_handler.explain.explain import explain as explain_execution
from dlq_handler.explain.records import Records, Waiting
from dlq_handler.explain.story import Moment
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database
from dlq_handler.settings.servers import broker_of, connection_source_of
from dlq_handler.text import in_units

app = typer.Typer(no_args_is_help=True)

ExecutionId = Annotated[int, typer.Argument(metavar="ID", min=1, max=LARGEST_ID)]

# Under the text of a moment: behind its time, age and kind.
_MARGIN = " " * 47

# Evidence goes on in the next line from here: one line of it had more than 300 characters.
_WIDTH = 110


@app.callback()
def _executions() -> None:
    """A group with one command; more may follow."""


@app.command()
def explain(
    execution_id: ExecutionId, config: ConfigOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Show the history of one execution with actors and reasons. If it is still open, show why it waits.

    The command decides like a replica that has been connected long enough. Times are UTC by the database's clock; the
    time of a death is the broker's.
    """
    settings = load_or_exit(config).settings
    explanation = wait_for("asking the database and the broker", _explain(settings, execution_id))
    if explanation is None:
        no_record = no_record_sentence(settings.retention.resolved_seconds, f"execution {execution_id}")
        print_error(
            f"{no_record} Check the id, and the database that `dlq-handler config show` names. While the brake or the "
            "safety gate stops decisions, dead letters wait in the queue (/readyz)."
        )
        raise typer.Exit(1)
    if output is Output.JSON:
        print_json(_in_full(explanation))
        return
    for line in _lines(explanation):
        print(line)


async def _explain(settings: Settings, execution_id: int) -> Explanation | None:
    """None: neither the host nor dlq-handler has a record of it."""
    address = broker_of(settings)
    async with open_database(settings) as database, AdminConnection(address) as admin:
        # One execution needs one probe of one queue. Without the queue's real TTL the deadline would be wrong.
        queues = observe_worker_queues(settings, admin)
        explanation = await explain_execution(
            database,
            execution_id,
            settings.explain_policy,
            observer=queues,
            connections=connection_source_of(settings),
        )
    if queues.broker_error is not None:
        print_warning(f"broker: {queues.broker_error}; the state of the queues is unknown")
    return explanation


def _in_full(explanation: Explanation) -> dict[str, object]:
    records = explanation.records
    return {
        "execution": records.execution,
        "moments": explanation.moments,
        "waiting": explanation.waiting,
        "has_history": records.history is not None,
        "now": records.now,
    }


def _lines(explanation: Explanation) -> Iterator[str]:
    records = explanation.records
    yield _headline(records)
    yield ""
    for moment in explanation.moments:
        yield from _moment_lines(moment, records.now)
    if explanation.waiting is not None:
        yield ""
        yield from _waiting_lines(explanation.waiting, records.now)
    if records.history is None:
        yield ""
        yield "The host's history cannot be read (no SELECT on execution_history): some of its steps may be missing."


def _headline(records: Records) -> str:
    execution = records.execution
    if execution is None:
        return "The host has no such execution any more; this is what is on record about it."
    worker = f" on worker {execution.worker_id}" if execution.worker_id is not None else ""
    age = in_units((records.now - execution.updated).total_seconds())
    since = f"{worker} {age} ago" if execution.is_terminal else f"{worker} for {age}"
    return printable(f"execution {execution.id}, {execution.action_ref}: {execution.status}{since}")


def _moment_lines(moment: Moment, now: datetime) -> Iterator[str]:
    shadow = "(shadow: nothing was done) " if moment.is_shadow else ""
    by = f"  [{moment.by}]" if moment.by else ""
    age = f"{in_units((now - moment.at).total_seconds())} ago"
    yield f"{_utc(moment.at)}  {age:>10}  {moment.kind:<11}  {printable(shadow + moment.text + by)}"
    yield from _evidence_lines(moment.evidence, _MARGIN)


def _waiting_lines(waiting: Waiting, now: datetime) -> Iterator[str]:
    first, *more = [waiting.unwatched, waiting.explanation] if waiting.unwatched else [waiting.explanation]
    yield printable(f"Still open: {first}")
    yield from (printable(f"  {line}") for line in more)
    if waiting.until is not None:
        left = (waiting.until - now).total_seconds()
        when = f"in {in_units(left)}" if left > 0 else "due"
        yield f"  {'at the earliest at' if waiting.is_earliest else 'until'} {_utc(waiting.until)} ({when})"
    yield from (printable(f"  {note}") for note in waiting.notes)
    yield from _evidence_lines(waiting.evidence, " " * 4)


def _evidence_lines(evidence: Mapping[str, object], margin: str) -> Iterator[str]:
    """Unknown values are left out here; JSON has them."""
    line = ""
    for name, value in evidence.items():
        if value is None:
            continue
        fact = printable(f"{name}={shown(value)}")
        if line and len(margin) + len(line) + len(fact) + 2 > _WIDTH:
            yield margin + line
            line = ""
        line = f"{line}  {fact}" if line else fact
    if line:
        yield margin + line


def _utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
