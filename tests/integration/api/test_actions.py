"""What operators do: once, upon what they saw, with a reason, and on record with the act or not at all."""

import asyncio
from typing import Any

import httpx
import pytest

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import reprocess_sql
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.reprocess_sql import MOST_QUEUED
from dlq_handler.operations import audit_sql
from dlq_handler.operations.audit_sql import list_operations
from dlq_handler.operations.operation import Actor, Client
from dlq_handler.operations.operations import Operations
from dlq_handler.safety import brake_sql
from tests.support.builders import a_dead_letter
from tests.support.deciding import KEPT_GROUP, a_kept_group
from tests.support.ui import a_ui_world, asking, put_on_record

ADA = Actor(username="ada", client=Client.API)


async def post(api: httpx.AsyncClient, path: str, **ask: Any) -> httpx.Response:
    return await api.post(path, json={"comment": "it is real", **ask})


async def version_of(api: httpx.AsyncClient, path: str) -> str:
    return str((await api.get(path)).json()["version"])


async def test_a_release_is_done_once_upon_what_was_seen(api: httpx.AsyncClient, ui_store: Database) -> None:
    async with ui_store.transaction() as tx:
        await brake_sql.trip(tx, by="sidecar-1", explanation="too many", hold_seconds=0)
    seen = await version_of(api, "brake")
    done = await post(api, "brake/release", version=seen, for_seconds=600)
    assert done.json()["brake"]["mode"] == "released"
    [operation] = await list_operations(ui_store)
    assert done.json()["operation_id"] == operation.id
    assert (operation.action, operation.result) == ("brake.release", "no limit for 10 min")

    again = await post(api, "brake/release", version=seen, for_seconds=600)
    assert again.status_code == 409
    assert again.json()["error"]["version"] == await version_of(api, "brake")
    assert len(await list_operations(ui_store)) == 1


async def test_of_two_who_act_upon_the_same_state_one_does(
    api: httpx.AsyncClient, ui_store: Database
) -> None:
    seen = await version_of(api, "brake")
    answers = await asyncio.gather(*(post(api, "brake/release", version=seen) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    assert len(await list_operations(ui_store)) == 1


async def test_a_kept_letter_is_decided_again_at_once(api: httpx.AsyncClient, ui_store: Database) -> None:
    [letter_id] = await put_on_record(ui_store, a_dead_letter(), outcome=Outcome.UNKNOWN_EXECUTION)
    seen = await version_of(api, f"letters/{letter_id}")
    done = (await post(api, "letters/reprocess", letter_id=letter_id, version=seen)).json()
    assert (done["letters"], done["waiting"]) == (1, {})
    assert (done["decided"][0]["before"], done["decided"][0]["outcome"]) == ("unknown_execution",) * 2
    [operation] = await list_operations(ui_store)
    assert (operation.target, operation.comment) == (f"letter {letter_id}", "it is real")
    assert operation.result == "1 queued for reprocessing"

    stale = await post(api, "letters/reprocess", letter_id=letter_id, version=seen)
    assert stale.status_code == 409, "it was decided since"
    assert len(await list_operations(ui_store)) == 1


async def test_a_whole_group_is_queued_and_the_first_are_reprocessed_at_once(
    api: httpx.AsyncClient, ui_store: Database
) -> None:
    kept = await put_on_record(
        ui_store,
        *(a_dead_letter(key=f"k{number}", execution_id=number + 1) for number in range(25)),
        outcome=Outcome.UNKNOWN_EXECUTION,
    )
    group = (await api.get(f"letters/{kept[0]}")).json()["group_id"]
    seen = await version_of(api, f"groups/{group}")
    done = (await post(api, "letters/reprocess", group=group, version=seen)).json()
    assert (done["letters"], len(done["decided"]), len(done["waiting"])) == (25, 20, 5)
    due = await reprocess_sql.due_for_reprocess(ui_store)
    assert [one.record_id for one in due] == kept[20:], "a replica reprocesses them"
    [operation] = await list_operations(ui_store)
    assert (operation.target, operation.result) == (f"group {group}", "25 queued for reprocessing")

    again = await post(api, "letters/reprocess", group=group, version=seen)
    assert again.status_code == 409, "they were put up since"
    assert again.json()["error"]["version"] == await version_of(api, f"groups/{group}")
    assert len(await list_operations(ui_store)) == 1

    seen = await version_of(api, f"groups/{group}")
    await put_on_record(ui_store, a_dead_letter(key="new"), outcome=Outcome.UNKNOWN_EXECUTION)
    more = await post(api, "letters/reprocess", group=group, version=seen)
    assert more.status_code == 409, "there is one more now than was seen"


async def test_a_very_large_group_is_queued_in_parts(api: httpx.AsyncClient, ui_store: Database) -> None:
    await a_kept_group(ui_store, MOST_QUEUED + 30)
    shown = (await api.get(f"groups/{KEPT_GROUP}")).json()
    assert (shown["reprocessable"], shown["is_capped"]) == (MOST_QUEUED, True)
    async with ui_store.transaction() as tx:
        await brake_sql.trip(
            tx, by="sidecar-1", explanation="nothing is decided, so that all stays put up", hold_seconds=0
        )

    first = (await post(api, "letters/reprocess", group=KEPT_GROUP, version=shown["version"])).json()
    assert (first["letters"], first["left"]) == (MOST_QUEUED, {"count": 30, "is_capped": False})
    assert len(first["waiting"]) <= 20
    again = await post(api, "letters/reprocess", group=KEPT_GROUP, version=shown["version"])
    assert again.status_code == 409, "they were put up since"

    seen = await version_of(api, f"groups/{KEPT_GROUP}")
    rest = (await post(api, "letters/reprocess", group=KEPT_GROUP, version=seen)).json()
    assert rest["left"] == {"count": 0, "is_capped": False}
    async with ui_store.transaction() as tx:
        [row] = await tx.rows("SELECT count(*) AS waiting FROM own.letter WHERE next_attempt_at IS NULL")
    assert row.waiting == 0
    assert [one.result for one in await list_operations(ui_store)] == [
        "10000 queued for reprocessing",
        "10000 queued for reprocessing, 30 left",
    ]


async def test_queued_letters_are_queued_once_also_before_they_are_reprocessed(
    api: httpx.AsyncClient, ui_store: Database
) -> None:
    """Behind a tripped brake the outcome does not change, nor does an unrelated one ever: its due time shows it."""
    [letter_id] = await put_on_record(ui_store, a_dead_letter(), outcome=Outcome.UNRELATED)
    async with ui_store.transaction() as tx:
        await brake_sql.trip(tx, by="sidecar-1", explanation="too many", hold_seconds=0)
    shown = (await api.get(f"letters/{letter_id}")).json()
    group = {"group": shown["group_id"], "version": await version_of(api, f"groups/{shown['group_id']}")}
    letter = {"letter_id": letter_id, "version": shown["version"]}
    answers = [(await post(api, "letters/reprocess", **ask)).status_code for ask in (group, group, letter)]
    assert answers == [200, 409, 409]
    assert len(await list_operations(ui_store)) == 1


async def test_a_letter_that_cannot_be_reprocessed_is_refused_and_not_recorded(
    api: httpx.AsyncClient, ui_store: Database
) -> None:
    [settled] = await put_on_record(ui_store, a_dead_letter())
    shown = (await api.get(f"letters/{settled}")).json()
    refused = await post(api, "letters/reprocess", letter_id=settled, version=shown["version"])
    assert (refused.status_code, "failed" in refused.text) == (409, True)
    group = shown["group_id"]
    nothing = await post(
        api, "letters/reprocess", group=group, version=await version_of(api, f"groups/{group}")
    )
    assert nothing.status_code == 409
    unknown = await post(api, "letters/reprocess", letter_id=4711, version="x")
    assert unknown.status_code == 404
    async with asking(await a_ui_world(ui_store, is_shadow=True)) as client:
        client.base_url = "http://localhost:8085/api/v1/"
        shadow = await post(client, "letters/reprocess", letter_id=settled, version=shown["version"])
        assert (shadow.status_code, "shadow" in shadow.text) == (409, True)
    assert await list_operations(ui_store) == []


async def test_an_act_without_reason_or_version_or_sense_is_refused(
    api: httpx.AsyncClient, ui_store: Database
) -> None:
    for path, ask in (
        ("brake/release", {"comment": " ", "version": "x"}),
        ("brake/release", {"comment": "x" * 501, "version": "x"}),
        ("brake/release", {"comment": "x"}),
        ("brake/release", {"comment": "x", "version": "x", "for_seconds": -1}),
        ("brake/release", {"comment": "x", "version": "x", "for": 5}),
        ("letters/reprocess", {"comment": "x", "version": "x"}),
        ("letters/reprocess", {"comment": "x", "version": "x", "letter_id": 1, "group": "0123456789"}),
    ):
        assert (await api.post(path, json=ask)).status_code == 422, (path, ask)
    assert (
        await api.post("brake/release", content=b"{", headers={"Content-Type": "application/json"})
    ).status_code == 422
    assert await list_operations(ui_store) == []


async def test_an_act_that_cannot_be_put_on_record_is_not_done(
    ui_store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an act that cannot be done is not on record: both are one transaction."""
    [letter_id] = await put_on_record(ui_store, a_dead_letter(), outcome=Outcome.UNKNOWN_EXECUTION)
    operating = (await a_ui_world(ui_store)).operating

    async def fail(*_: object, **__: object) -> int:
        raise RuntimeError("no audit")

    monkeypatch.setattr(audit_sql, "record", fail)
    for act in (
        operating.release_brake(ADA, comment="x", for_seconds=60),
        operating.reprocess(ADA, letter_ids=[letter_id], comment="x"),
        operating.read_body(ADA, letter_id),
    ):
        with pytest.raises(RuntimeError, match="no audit"):
            await act
    async with ui_store.transaction() as tx:
        assert (await brake_sql.read_brake(tx)).state.released_at is None
    assert await reprocess_sql.due_for_reprocess(ui_store) == []


async def test_letters_queued_behind_a_tripped_brake_wait_for_it(ui_store: Database) -> None:
    """They are due, so a replica reprocesses them when the brake allows it; the answer has the reason."""
    kept = await put_on_record(
        ui_store,
        a_dead_letter(key="a"),
        a_dead_letter(key="b", execution_id=2),
        outcome=Outcome.UNKNOWN_EXECUTION,
    )
    world = await a_ui_world(ui_store)
    async with ui_store.transaction() as tx:
        await brake_sql.trip(tx, by="sidecar-1", explanation="too many", hold_seconds=0)
    put_up = await world.operating.reprocess(ADA, letter_ids=kept, comment="x")
    assert (list(put_up.letter_ids), list(put_up.decided)) == (kept, [])
    assert all("brake" in explanation for explanation in put_up.waiting.values())
    assert set(put_up.waiting) == set(kept)
    assert [one.record_id for one in await reprocess_sql.due_for_reprocess(ui_store)] == kept


async def test_of_many_letters_those_that_cannot_be_decided_are_named(ui_store: Database) -> None:
    [kept] = await put_on_record(ui_store, a_dead_letter(key="a"), outcome=Outcome.UNRELATED)
    [settled] = await put_on_record(ui_store, a_dead_letter(key="b"))
    operating: Operations = (await a_ui_world(ui_store)).operating
    done = await operating.reprocess(ADA, letter_ids=[kept, settled, 4711], comment="x")
    assert list(done.letter_ids) == [kept]
    assert set(done.refused) == {settled, 4711}
