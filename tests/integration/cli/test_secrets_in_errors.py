"""An error quotes what it is about. Planted secrets are looked for wherever a person reads one: page, API, terminal."""

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import records_sql
from dlq_handler.diagnosis.status_sql import waiting_events
from dlq_handler.errors import Unavailable
from dlq_handler.explain.explain import Explanation, explain
from dlq_handler.explain.options import ExplainPolicy
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.safety.options import BrakeOptions
from tests.integration.cli.conftest import Terminal
from tests.support.builders import a_dead_letter
from tests.support.host_tables import Host
from tests.support.stale_world import LIMITS, SetObservation
from tests.support.ui import a_ui_world, asking, put_on_record

SECRETS = ("hunter2", "s3cr3t", "abc123")
PLANTED = (
    'refused by a trigger: {"password":"hunter2"} of amqp://bob:s3cr3t@mq/ or postgres://bob:s3cr3t@db,'
    " token=abc123secret"
)
EVIDENCE = {"said": "refused by a trigger at amqp://bob:s3cr3t@mq/", "auth": {"is": "hunter2"}}

EXPLAIN = ExplainPolicy(
    limits=LIMITS,
    brake=BrakeOptions(max_decisions_per_minute=10, hold_seconds=600),
    names=WorkerQueueNames(),
    lease="leader",
    is_monitored=True,
    is_shadow=False,
)


class Planted:
    """A letter that the database refused, of an execution that ended; and one that is open and was refused an end."""

    def __init__(self, letter: int, ended: int, waiting: int) -> None:
        self.letter, self.ended, self.waiting = letter, ended, waiting


@pytest.fixture
async def planted(store: Database, host: Host) -> Planted:
    ended, waiting = await host.add_execution(status="failed"), await host.add_execution(status="running")
    [letter] = await put_on_record(store, a_dead_letter(execution_id=ended))
    await host.session.execute(
        "UPDATE execution SET result = jsonb_build_object('error', $1::text), updated = now() WHERE id = $2",
        PLANTED,
        ended,
    )
    await host.session.execute(
        "UPDATE dlq_handler.letter SET outcome = 'update_failed', error = $1, evidence = $2::jsonb,"
        " next_attempt_at = now() + interval '1 day'",
        PLANTED,
        EVIDENCE,
    )
    await host.session.execute(
        "INSERT INTO dlq_handler.stale_decision (execution_id, attempt_updated_at, original_status, outcome,"
        " explanation,"
        " evidence, error, attempts, next_attempt_at, is_shadow, decided_at, replica)"
        " SELECT id, updated, 'running', 'update_failed', 'so it was', $1::jsonb, $2, 1, now() + interval '1 day',"
        " false, now(), 'test' FROM execution WHERE id = $3",
        EVIDENCE,
        PLANTED,
        waiting,
    )
    for number in (ended, waiting):
        await host.session.execute(
            "INSERT INTO dlq_handler.outbox (message_id, correlation_id, execution_id, is_workflow_task, exchange,"
            " routing_key, body, created_at, attempts, next_attempt_at, last_error)"
            " VALUES (gen_random_uuid(), gen_random_uuid(), $1, false, 'attune.executions', 'execution.completed',"
            " '{}', now(), 3, now(), $2)",
            number,
            PLANTED,
        )
    return Planted(letter, ended, waiting)


async def test_no_page_no_answer_and_no_command_shows_a_secret_that_an_error_quotes(
    terminal: Terminal, store: Database, planted: Planted
) -> None:
    async def story_of(execution_id: int) -> Explanation | None:
        return await explain(store, execution_id, EXPLAIN, observer=SetObservation())

    letter, ended, waiting = planted.letter, planted.ended, planted.waiting
    shown: dict[str, str] = {}
    async with asking(await a_ui_world(store, explain=story_of)) as client:
        for path in (
            "/letters",
            f"/letters/{letter}",
            f"/letters/{letter}/reprocess",
            f"/executions/{ended}",
            f"/executions/{waiting}",
            "/api/v1/letters",
            f"/api/v1/letters/{letter}",
            f"/api/v1/executions/{ended}",
            f"/api/v1/executions/{waiting}",
        ):
            shown[path] = (await client.get(path)).text
    for command in (
        "letters list",
        f"letters show {letter}",
        f"letters show {letter} --output json",
        "letters export",
        "letters export --format csv --bodies",
        f"executions explain {ended}",
        f"executions explain {ended} --output json",
        f"executions explain {waiting}",
        f"executions explain {waiting} --output json",
    ):
        typed = await terminal.type(*command.split())
        shown[command] = typed.out + typed.err

    assert [where for where, text in shown.items() if "refused by a trigger" not in text] == []
    leaks = {where: [one for one in SECRETS if one in text] for where, text in shown.items()}
    assert {where: found for where, found in leaks.items() if found} == {}


async def test_a_diagnosis_contains_no_password_of_an_address(store: Database, planted: Planted) -> None:
    last_error = (await waiting_events(store)).last_error or ""
    assert "refused by a trigger" in last_error
    assert not any(one in last_error for one in SECRETS)
    away = Unavailable("broker", "connect: OSError: cannot open amqp://bob:s3cr3t@mq:5672/%2F")
    assert (str(away), away.what) == (
        f"broker: {away.what}",
        "connect: OSError: cannot open amqp://bob:***@mq:5672/%2F",
    )


async def test_what_is_masked_for_people_stays_on_record_as_it_was(
    store: Database, host: Host, planted: Planted
) -> None:
    record = await records_sql.show(store, planted.letter)
    assert record is not None
    assert record.error != PLANTED
    assert (await host.letters())[0]["error"] == PLANTED
