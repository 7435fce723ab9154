"""The journey of a careful operator: watch first, compare, then let it work."""

from typing import Any

from dlq_handler.host.names import STOCK_QUEUE
from sandbox.attune import topology
from tests.crash.world import bind_worker
from tests.support.eventually import eventually
from tests.support.stock_world import StockWorld

LETTERS = 10


async def test_shadow_says_what_it_would_have_done_and_the_real_run_does_it(world: StockWorld) -> None:
    worker = await world.lost_worker()
    # As another program has bound it: the dead letters themselves go there, and stay.
    await bind_worker(world.amqp_url, worker.id)
    # Without a canary: it would come to that queue as well, where its messages are counted.
    async with world.sidecar(
        shadow__enabled="true",
        canary__enabled="false",
    ) as sidecar:
        dispatched = await world.executor.schedule_many(LETTERS, worker.id)

        async def on_record() -> bool:
            return await world.outcomes() == {"failed": LETTERS}

        await eventually(on_record, timeout=60)
        listed: list[dict[str, Any]] = await sidecar.cli_json("letters", "list")
        assert {letter["execution_id"] for letter in listed} == {one.execution_id for one in dispatched}
        assert all(letter["is_shadow"] for letter in listed)
        _, table, _ = await sidecar.cli("letters", "list")
        assert table.count("failed (SHADOW)") == LETTERS
        code, _, refusal = await sidecar.cli("letters", "reprocess", str(listed[0]["id"]))
        assert (code, "shadow" in refusal) == (1, True)
        assert ((await sidecar.readyz())[0], "shadow mode" in await sidecar.problems()) == (200, True)
        assert (await sidecar.metrics())["dlq_handler_shadow"] == 1
        assert sidecar.events("shadow.started")
        assert [event["shadow"] for event in sidecar.events("dead_letter.decided")] == [True] * LETTERS
        assert await sidecar.terminate() == 0

    assert [await world.auditor.status(one.execution_id) for one in dispatched] == ["scheduled"] * LETTERS
    assert await world.auditor.completions() == []
    assert await world.sql("SELECT * FROM dlq_handler.outbox") == []
    assert await topology.ready_count(world.amqp_url, STOCK_QUEUE) == LETTERS

    async with world.sidecar(name="sidecar-2"):
        await world.all_ended(dispatched)
    marks = await world.sql(
        "SELECT is_shadow, count(*) AS letters FROM dlq_handler.letter GROUP BY is_shadow"
    )
    assert {row["is_shadow"]: row["letters"] for row in marks} == {True: LETTERS, False: LETTERS}
