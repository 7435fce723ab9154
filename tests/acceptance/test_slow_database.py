"""Rules §3: a database on which a whole batch exceeds statement_timeout. Nothing is lost, everything is decided.

The intake queue is a classic one, or a quorum queue that drops a message after a few deliveries.
"""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from sandbox.attune import topology
from tests.crash.world import CrashWorld, a_world, bind_worker
from tests.support.eventually import eventually

LETTERS = 300
FEW = 3
QUEUES: dict[str, dict[str, Any]] = {
    "classic": {},
    "quorum-limit": {"x-queue-type": "quorum", "x-delivery-limit": 3},
}
SLOW: dict[str, Any] = {
    "database__statement_timeout_ms": "1000",
    "database__lock_timeout_ms": "300",
    "batch__size": "300",
}


@pytest.fixture(params=list(QUEUES))
async def world(
    request: pytest.FixtureRequest, vhost: str, database: str, tmp_path: Path
) -> AsyncIterator[CrashWorld]:
    async with a_world(vhost, database, tmp_path) as one:
        await replace_intake_queue(vhost, QUEUES[request.param])
        await bind_worker(vhost, one.worker_id)
        yield one


async def test_a_batch_that_takes_too_long_is_halved_until_it_fits(world: CrashWorld) -> None:
    """10 ms a row and 1 s a statement: 300 do not fit, 75 do."""
    await slow_down(world, seconds=0.01)
    dispatches = await world.dead_lettered(LETTERS)
    async with world.sidecar(**SLOW):
        await world.settled_once(dispatches, timeout=60)
        assert await most_deliveries(world) <= 2


async def test_what_cannot_be_decided_at_all_is_recorded_before_the_broker_drops_it(
    world: CrashWorld,
) -> None:
    """1.5 s a row: not even one dead letter fits. Later the database is quick again."""
    await slow_down(world, seconds=1.5)
    dispatches = await world.dead_lettered(FEW)
    async with world.sidecar(**SLOW, intake__defer_after_deliveries="2"):
        await eventually(lambda: is_deferred(world), timeout=90, every=0.2)
        await slow_down(world, seconds=0)
        await world.settled_once(dispatches, timeout=90)
        assert await most_deliveries(world) <= 2


async def is_deferred(world: CrashWorld) -> bool:
    """At least one dead letter is on record, undecided."""
    [(count,)] = await world.sql("SELECT count(*) FROM dlq_handler.letter WHERE outcome = 'deferred'")
    return bool(count)


async def replace_intake_queue(vhost: str, arguments: Mapping[str, Any]) -> None:
    """As a host has it whose queues are of this kind."""
    async with await aio_pika.connect(vhost) as connection:
        channel = await connection.channel()
        await channel.queue_delete(topology.DLX_QUEUE)
        await channel.declare_queue(topology.DLX_QUEUE, durable=True, arguments=dict(arguments))


async def slow_down(world: CrashWorld, *, seconds: float) -> None:
    """A trigger of the host that takes so long for each execution that changes."""
    await world.sql(
        f"CREATE OR REPLACE FUNCTION take_time() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN PERFORM pg_sleep({seconds}); RETURN NEW; END $$"
    )
    await world.sql("DROP TRIGGER IF EXISTS take_time ON execution")
    await world.sql(
        "CREATE TRIGGER take_time BEFORE UPDATE ON execution FOR EACH ROW"
        " WHEN (NEW.status = 'failed') EXECUTE FUNCTION take_time()"
    )


async def most_deliveries(world: CrashWorld) -> int:
    """Of the dead letters on record: how often the broker had delivered one before, by its own count."""
    [(most,)] = await world.sql(
        "SELECT coalesce(max(CAST(headers ->> 'x-delivery-count' AS integer)), 0) FROM dlq_handler.letter"
    )
    return int(most)
