"""Promise 7: while the view of dlq-handler is unreliable nothing is decided, and the dead letters wait in the queue."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandbox.servers import PrivatePostgreSQL
from tests.crash.world import CrashWorld
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess

LETTERS = 30


async def test_wrong_database_is_left_alone_until_it_is_the_right_one_again(world: CrashWorld) -> None:
    dispatches = await world.schedule(LETTERS)
    ids = [dispatch.execution_id for dispatch in dispatches]
    await world.sql("DELETE FROM execution WHERE id = ANY ($1::bigint[])", ids)
    await world.dead_letter(dispatches)
    async with world.sidecar(start=False, batch__wait_ms="1000") as sidecar:
        await sidecar.start(ready=False)
        await eventually(lambda: is_closed(world, sidecar, "unknown_executions", "right database"))
        assert await world.sql("SELECT * FROM dlq_handler.letter") == []
        assert len(sidecar.events("gate.closed")) == 2, "and the young link of every start"
        await world.sql(
            "INSERT INTO execution (id, updated, action_ref, status, worker)"
            " SELECT id, updated, 'core.echo', 'scheduled', $3"
            "   FROM unnest($1::bigint[], $2::timestamptz[]) AS gone(id, updated)",
            ids,
            [dispatch.scheduled_at for dispatch in dispatches],
            world.worker_id,
        )
        await world.settled_once(dispatches)
        await sidecar.wait_ready()
        assert [event["cause"] for event in sidecar.events("gate.opened")] == ["unknown_executions"]


async def test_standby_is_not_decided_by_and_its_promotion_opens_the_gate(
    world: CrashWorld, postgres: PrivatePostgreSQL
) -> None:
    dispatches = await world.schedule(LETTERS)
    async with world.sidecar() as sidecar, as_standby(postgres):
        await world.dead_letter(dispatches)
        await eventually(lambda: is_closed(world, sidecar, "recovery", "standby"), timeout=60)
        assert await world.failed() == 0
        await world.sql("SELECT pg_promote()")
        await world.settled_once(dispatches)
        await sidecar.wait_ready()


async def test_a_replica_takes_nothing_while_the_tables_are_of_another_version(world: CrashWorld) -> None:
    dispatches = await world.schedule(LETTERS)
    async with world.sidecar() as sidecar:
        [[version]] = await world.sql("SELECT version_num FROM dlq_handler.alembic_version")
        await world.sql("UPDATE dlq_handler.alembic_version SET version_num = '9999'")
        await world.sql("UPDATE dlq_handler.compatibility SET least_program_version = '99.0.0'")
        await eventually(lambda: is_paused(world, sidecar), timeout=60)
        await world.dead_letter(dispatches)
        await eventually(lambda: is_closed(world, sidecar, "schema", "Upgrade dlq-handler"), timeout=60)
        assert await world.failed() == 0
        await world.sql("UPDATE dlq_handler.compatibility SET least_program_version = '0.1.0'")
        await world.sql("UPDATE dlq_handler.alembic_version SET version_num = $1", version)
        await world.settled_once(dispatches)
        await sidecar.wait_ready()


async def is_paused(world: CrashWorld, sidecar: SidecarProcess) -> bool:
    return await world.consumers() == 0 and (await sidecar.metrics())["dlq_handler_leader"] == 0


@asynccontextmanager
async def as_standby(postgres: PrivatePostgreSQL) -> AsyncIterator[None]:
    """The server in recovery, as a standby without its primary; a primary again at the end."""
    await postgres.stop()
    signal_file = postgres.folder / "cluster" / "standby.signal"
    signal_file.touch()
    owner = signal_file.parent.stat()
    os.chown(signal_file, owner.st_uid, owner.st_gid)
    try:
        await postgres.start()
        yield
    finally:
        if signal_file.exists():
            await postgres.stop()
            signal_file.unlink(missing_ok=True)
            await postgres.start()


async def is_closed(world: CrashWorld, sidecar: SidecarProcess, cause: str, words: str) -> bool:
    """The safety gate and the intake are closed: no consumer, and every dead letter is ready in the queue."""
    status, answer = await sidecar.readyz()
    assert status == 503
    assert words in answer["gate"]["causes"].get(cause, "")
    assert words in (await sidecar.problems()).get("safety gate", "")
    assert words in answer["checks"]["consumer"]["detail"]
    assert (await sidecar.metrics())[f'dlq_handler_gate_closed{{cause="{cause}"}}'] == 1
    return await world.letters_ready() == LETTERS and await world.consumers() == 0
