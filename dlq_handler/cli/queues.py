"""`dlq-handler queues`: the queues of the vhost, and who owns each of them."""

from collections import Counter
from collections.abc import Sequence

import typer

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.options import ConfigOption, Output, OutputOption
from dlq_handler.cli.patience import wait_for
from dlq_handler.cli.printing import print_json, print_table, print_warning
from dlq_handler.cli.queues_orphans import orphans, retire
from dlq_handler.lifecycle.queue_list import QueueRow, QueueStatus
from dlq_handler.lifecycle.queue_lister import QueueList, list_all_queues
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database
from dlq_handler.settings.servers import broker_of, management_api_of

app = typer.Typer(no_args_is_help=True)
app.command("orphans")(orphans)
app.command("retire")(retire)

_UNKNOWN = "?"
_COLUMNS = ("NAME", "OWNED BY", "OWNER", "EXISTS", "READY", "CONSUMERS", "STATUS")


@app.callback()
def _nouns() -> None:
    """Queues, and who owns each of them."""


@app.command("list")
def list_all(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """List the queues of the vhost with their owners. Changes nothing.

    Without RabbitMQ's management API only queues that dlq-handler knows by name are listed, and some answers are
    unknown (?): the output says which and why. `missing`: its service declares it at every start, and it does not
    exist. `differs`: it exists with other arguments than its owner declares.
    """
    found = wait_for("asking the database and the broker", _list(load_or_exit(config).settings))
    for limit in found.limits:
        print_warning(limit)
    if output is Output.JSON:
        print_json(found.rows)
        return
    # A host keeps the rows of unavailable workers for ever, and with them the names of queues.
    shown = [row for row in found.rows if row.status is not QueueStatus.ABSENT]
    print_table(_COLUMNS, [_cells(row) for row in shown], empty="no queues", optional=("OWNED BY",))
    if hidden := len(found.rows) - len(shown):
        print(f"{hidden} queue(s) that need not exist do not exist (`--output json` has them)")
    for line in _explanations(shown):
        print(line)


async def _list(settings: Settings) -> QueueList:
    async with open_database(settings) as database, AdminConnection(broker_of(settings)) as admin:
        return await list_all_queues(database, admin, management_api_of(settings), settings.queue_names)


def _cells(row: QueueRow) -> Sequence[object]:
    # A queue that does not exist has no counts; those of any other queue may be unknown.
    unknown = None if row.exists is False else _UNKNOWN
    ready, consumers = (unknown if count is None else count for count in (row.ready, row.consumers))
    exists = _UNKNOWN if row.exists is None else "yes" if row.exists else "no"
    return (row.name, row.owner_kind, row.owner, exists, ready, consumers, row.status)


def _explanations(rows: Sequence[QueueRow]) -> Sequence[str]:
    """Queues with the same explanation share one line."""
    counted = Counter(row.explanation for row in rows if row.explanation is not None)
    first = {row.explanation: row.name for row in reversed(rows)}
    return [
        f"{first[text]}: {text}" if number == 1 else f"{first[text]} and {number - 1} more: {text}"
        for text, number in counted.items()
    ]
