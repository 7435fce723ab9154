"""A leader killed in the middle of a scan: the other replica takes over, and every execution ends once."""

import signal
from collections import Counter
from typing import Any

import pytest

from tests.crash.world import SABOTAGE, CrashWorld
from tests.support.eventually import eventually

STALE = 100
PAGE = 20
QUICK: dict[str, Any] = {
    "monitor__interval_seconds": "4",
    "ATTUNE__WORKER__HEARTBEAT_INTERVAL": "1",
    "worker__unavailable_after_seconds": "2",
    "monitor__batch_size": str(PAGE),
}


@pytest.mark.parametrize(("point", "pages"), [("in_a_page", {1, 2}), ("between_pages", {3, 4})])
async def test_the_other_replica_finishes_what_a_killed_leader_began(
    world: CrashWorld, point: str, pages: set[int]
) -> None:
    """`pages`: the numbers of batches that it may have committed. Two run at once, in either order."""
    # Their messages were never sent, so there are no dead letters.
    ids = [dispatch.execution_id for dispatch in await world.schedule(STALE)]
    async with world.sidecar("killed", start=False, **QUICK) as victim:
        await victim.start(program=(SABOTAGE, point, "3"))
        await eventually(lambda: victim.events("leadership.acquired"))
        async with world.sidecar("successor", **QUICK) as successor:
            assert not successor.events("leadership.acquired")
            # Before that no heartbeat is believed, and a scan would end nothing.
            await eventually(lambda: victim.events("gate.opened"))
            await make_stale(world, ids)
            assert await victim.wait() == -signal.SIGKILL
            assert (await world.auditor.statuses())["failed"] >= min(pages) * PAGE

            assert not successor.events("leadership.acquired")
            # As if its 30 s were over: tests/integration/database/test_leadership.py holds that they are waited for.
            await world.sql("UPDATE dlq_handler.lease SET until = now()")
            await eventually(lambda: all_announced(world, ids), timeout=60, every=0.1)
            assert successor.events("leadership.acquired")
    changes = await world.sql(
        "SELECT entity_id, new_values ->> 'status' FROM execution_history"
        " WHERE operation = 'UPDATE' AND old_values ->> 'status' = 'scheduled'"
    )
    assert Counter(changes) == Counter((one, "failed") for one in ids)
    assert await world.auditor.completion_counts() == Counter(ids)
    decided_by = dict(
        await world.sql("SELECT replica, count(*) FROM dlq_handler.stale_decision GROUP BY replica")
    )
    assert decided_by["killed"] in {count * PAGE for count in pages}
    assert decided_by == {"killed": decided_by["killed"], "successor": STALE - decided_by["killed"]}


async def make_stale(world: CrashWorld, ids: list[int]) -> None:
    """Without the triggers, one of which would make them new."""
    async with world.auditor.database.transaction() as session:
        await session.execute("SET LOCAL session_replication_role = replica")
        await session.execute(
            "UPDATE execution SET updated = now() - interval '1 hour' WHERE id = ANY ($1::bigint[])", ids
        )


async def all_announced(world: CrashWorld, ids: list[int]) -> bool:
    [(ended, announced)] = await world.sql(
        "SELECT (SELECT count(*) FROM execution WHERE status = 'failed' AND id = ANY ($1::bigint[])),"
        " (SELECT count(*) FROM dlq_handler.outbox WHERE confirmed_at IS NOT NULL)",
        ids,
    )
    assert (ended, announced) == (STALE, STALE)
    return True
