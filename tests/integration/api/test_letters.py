"""Letters over HTTP: found by what people know of them, page by page, and shown without their secrets."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.records_sql import delete_resolved
from dlq_handler.operations.audit_sql import list_operations
from dlq_handler.web.world import SearchTurns
from tests.support.builders import a_dead_letter, a_death
from tests.support.eventually import eventually
from tests.support.ui import OPERATE, READ, TOKENS, a_ui_world, asking, put_on_record

SECRET = {"action_ref": "core.echo", "config": {"password": "s3cret", "url": "amqp://me:s3cret@host/"}}


async def ids(api: httpx.AsyncClient, **query: object) -> list[int]:
    answer = await api.get("letters", params={name: str(value) for name, value in query.items()})
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["letters"]]


async def test_letters_are_found_by_what_people_know_of_them(
    api: httpx.AsyncClient, ui_store: Database
) -> None:
    [first] = await put_on_record(ui_store, a_dead_letter(key="a", execution_id=4711))
    [second] = await put_on_record(
        ui_store,
        a_dead_letter(
            key="b", worker_id=8, action_ref="etl.load", death=a_death(reason="maxlen"), message_id="m-2"
        ),
        outcome=Outcome.UNKNOWN_EXECUTION,
    )
    group = (await api.get(f"letters/{second}")).json()["group_id"]
    soon = datetime.now(UTC) + timedelta(hours=1)

    assert await ids(api) == [second, first]
    for only_second in (
        {"outcome": "unknown_execution"},
        {"category": "unknown_execution"},
        {"reason": "maxlen"},
        {"worker_id": 8},
        {"action": "etl.load"},
        {"group": group},
        {"search": "m-2"},
        {"search": second},
    ):
        assert await ids(api, **only_second) == [second], only_second
    assert await ids(api, search="4711") == [first]
    assert await ids(api, since=soon.isoformat()) == []
    assert await ids(api, until=soon.isoformat()) == [second, first]
    assert await ids(api, search="4711", outcome="unknown_execution") == []
    assert (await api.get("letters/count", params={"reason": "maxlen"})).json() == {
        "count": 1,
        "is_capped": False,
    }


async def test_pages_lead_to_older_and_newer_ones(api: httpx.AsyncClient, ui_store: Database) -> None:
    five = await put_on_record(ui_store, *(a_dead_letter(key=f"k{number}") for number in range(5)))
    newest = (await api.get("letters", params={"limit": "2"})).json()
    assert [one["id"] for one in newest["letters"]] == five[:2:-1]
    assert newest["newer"] is None
    middle = (await api.get("letters", params={"limit": "2", "before": newest["older"]})).json()
    assert [one["id"] for one in middle["letters"]] == [five[2], five[1]]
    back = (await api.get("letters", params={"limit": "2", "after": middle["newer"]})).json()
    assert [one["id"] for one in back["letters"]] == [five[4], five[3]]
    last = (await api.get("letters", params={"limit": "2", "before": middle["older"]})).json()
    assert ([one["id"] for one in last["letters"]], last["older"]) == ([five[0]], None)


NONSENSE = (
    *(
        "limit=0",
        "limit=201",
        "before=0",
        "before=9223372036854775808",
        "outcome=lost",
        "cause=x",
        "group=xyz",
    ),
    *(
        "since=yesterday",
        "since=0",
        "since=2030-01-01T00:00:00",
        "until=0001-01-01T00:00:00Z",
        "worker_id=x",
        "search=",
    ),
    *("action=" + "x" * 201, "outcom=failed"),
)


async def test_a_question_that_makes_no_sense_is_refused_in_words(api: httpx.AsyncClient) -> None:
    for query in NONSENSE:
        answer = await api.get(f"letters?{query}")
        assert answer.status_code == 422, query
        detail = answer.json()["error"]["detail"]
        assert query.partition("=")[0] in detail
        assert "Value error" not in detail


async def test_a_letter_is_shown_whole_and_masked(api: httpx.AsyncClient, ui_store: Database) -> None:
    body = json.dumps(SECRET).encode()
    older, letter_id, newer = await put_on_record(
        ui_store,
        a_dead_letter(key="older"),
        a_dead_letter(
            key="it",
            body=body,
            body_size=len(body),
            headers=json.dumps(
                {
                    "x-api-token": "s3cret",
                    "x-death": [{"queue": "worker.7.executions", "routing-keys": ["k.7"]}],
                }
            ),
        ),
        a_dead_letter(key="newer"),
    )
    async with ui_store.transaction() as tx:
        await tx.run("UPDATE own.letter SET error = 'refused: password=s3cret' WHERE id = :id", id=letter_id)
    answer = await api.get(f"letters/{letter_id}")
    shown = answer.json()
    assert "s3cret" not in answer.text
    assert shown["error"] == "refused: password=***"
    assert json.loads(shown["body"]["text"]) == {
        "action_ref": "core.echo",
        "config": {"password": "***", "url": "amqp://***@host/"},
    }
    assert (shown["body"]["size"], shown["body_size"], shown["body"]["is_json"]) == (
        len(body),
        len(body),
        True,
    )
    assert shown["headers"] == {
        "x-api-token": "***",
        "x-death": [{"queue": "worker.7.executions", "routing-keys": ["k.7"]}],
    }
    assert (shown["older"], shown["newer"]) == (older, newer)
    assert shown["routing_key"] == "execution.dispatch.worker.7"
    assert not shown["is_reprocessable"]


@pytest.mark.parametrize(("token", "is_shown"), [(OPERATE, True), (READ, False)])
async def test_a_body_that_is_not_json_is_for_the_role_operate(
    ui_store: Database, token: str, is_shown: bool
) -> None:
    [letter_id] = await put_on_record(ui_store, a_dead_letter(body=b"order 7, password=s3cret"))
    async with asking(await a_ui_world(ui_store, tokens=TOKENS), token=token) as client:
        shown = (await client.get(f"/api/v1/letters/{letter_id}")).json()["body"]
        page = (await client.get(f"/letters/{letter_id}")).text
    assert (shown["text"], shown["is_json"]) == ("order 7, password=***" if is_shown else None, False)
    assert ("order 7" in page, "s3cret" in page) == (is_shown, False)


async def test_a_letter_that_retention_deleted_is_no_record_and_so_is_one_that_never_was(
    api: httpx.AsyncClient, ui_store: Database
) -> None:
    [letter_id] = await put_on_record(ui_store, a_dead_letter())
    async with ui_store.transaction() as tx:
        await tx.run(
            "UPDATE own.letter SET received_at = now() - interval '2 days', decided_at = received_at"
        )
        await tx.run("UPDATE own.letter SET decided_at = received_at")
    assert await delete_resolved(ui_store, older_than_seconds=86_400) == 1

    for method, path in (("GET", f"letters/{letter_id}"), ("POST", f"letters/{letter_id}/body")):
        for asked in (path, path.replace(str(letter_id), "4711")):
            missing = await api.request(method, asked)
            assert missing.status_code == 404
            assert missing.json()["error"]["detail"] == (
                "No such record. Records are kept for 24 h; it may have been deleted."
            )
    assert await list_operations(ui_store) == [], "a body that was not read is not recorded"


async def test_a_raw_body_is_handed_out_as_it_came_and_recorded(
    api: httpx.AsyncClient, ui_store: Database
) -> None:
    body = b"<script>alert('s3cret')</script>\x00\xff"
    [letter_id] = await put_on_record(ui_store, a_dead_letter(body=body, body_size=len(body)))
    answer = await api.post(f"letters/{letter_id}/body")
    assert answer.content == body
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    [operation] = await list_operations(ui_store)
    assert (operation.username, operation.action, operation.target, operation.result) == (
        "ada",
        "letter.body_read",
        f"letter {letter_id}",
        f"{len(body)} bytes",
    )


@pytest.mark.parametrize(
    "paths", [("/api/v1/letters", "/api/v1/letters/count"), ("/letters", "/letters?search=7")]
)
async def test_slow_searches_leave_a_connection_for_other_questions(
    ui_store: Database, ui_database: str, paths: tuple[str, str]
) -> None:
    """More searches than connections, each waiting for a table that another session has locked."""
    pool = Database(ui_database, pool_size=2, connect_timeout_seconds=1, lock_timeout_ms=60_000)
    try:
        async with (
            asking(await a_ui_world(pool, searches=SearchTurns(1))) as client,
            ui_store.transaction() as tx,
            asyncio.TaskGroup() as group,
        ):
            await tx.run("LOCK TABLE own.letter IN ACCESS EXCLUSIVE MODE")
            searches = [group.create_task(client.get(path)) for path in paths * 4]

            async def is_one_waiting() -> bool:
                return bool(await tx.rows("SELECT 1 FROM pg_locks WHERE NOT granted"))

            await eventually(is_one_waiting)
            for _ in range(3):
                assert (await client.get("/api/v1/brake")).status_code == 200
            for search in searches:
                search.cancel()
    finally:
        await pool.dispose()


async def test_a_search_waits_its_turn_and_then_says_so(ui_store: Database) -> None:
    full = SearchTurns(0, wait_seconds=0.01)
    async with asking(await a_ui_world(ui_store, searches=full)) as client:
        answer = await client.get("/api/v1/letters")
        page = await client.get("/letters")
    assert (page.status_code, "searches are under way" in page.text) == (503, True)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert "searches are under way" in answer.json()["error"]["detail"]
