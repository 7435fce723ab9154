"""`executions explain` of a run whose worker reports: what hides a restart of the worker, and what ends the run."""

import pytest

from dlq_handler.database.engine import Database
from tests.integration.cli.conftest import Terminal
from tests.support.host_tables import Host


@pytest.mark.parametrize(
    ("reconnects", "sentences"),
    [
        (
            "false",
            [
                "a restart cannot be detected without the management API: ",
                "it is abandoned if it still runs at its limit of 360 s",
            ],
        ),
        (
            "true",
            [
                "a restart of the worker under its name is not detected",
                "dlq_handler.worker.reconnects is true",
            ],
        ),
    ],
    ids=["without the management API", "with the rule off"],
)
async def test_a_restart_that_cannot_be_detected_is_said_with_the_limit_that_ends_the_run(
    terminal: Terminal, store: Database, host: Host, reconnects: str, sentences: list[str]
) -> None:
    run = await host.add_execution(status="running", worker=await host.add_worker())
    typed = await terminal.type(
        "executions",
        "explain",
        str(run),
        ATTUNE__DLQ_HANDLER__WORKER__RECONNECTS=reconnects,
        ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL="http://127.0.0.1:9",
    )
    assert typed.code == 0, typed.err
    text = " ".join(typed.out.split())
    assert [one for one in sentences if one not in text] == [], text
