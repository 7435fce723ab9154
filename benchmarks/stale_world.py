"""Databases with many executions, and some stale ones among them, for the monitor's benchmark.

The many are ended and old, as in any installation that has run for a while. Rows are written with triggers off, since
that part is not measured; statistics are fresh before anything is timed.
"""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.world import WORKER_ID, Stage, World
from sandbox.attune import topology
from sandbox.attune.amqp import open_connection

INSERTED_AT_ONCE = 50_000

_HISTORY = """
INSERT INTO execution (action, action_ref, config, worker, status, result, created, updated)
SELECT action.id, action.ref, '{}', $3,
       (CAST('{completed,completed,completed,failed,cancelled,abandoned}' AS execution_status[]))[1 + n % 6],
       '{"exit_code": 0}', moment, moment
  FROM action, generate_series(CAST($1 AS integer), CAST($2 AS integer)) AS n,
       LATERAL (SELECT now() - interval '1 day' - n * interval '100 milliseconds' AS moment) AS then_
"""

# A few of each kind that a scan looks at and lets be, whatever the size: what really waits does not grow with history.
_LIVE = """
INSERT INTO worker (id, name, worker_type, worker_role, last_heartbeat)
SELECT 1000 + n, 'worker-alive-' || n, 'local', 'action', now() + interval '1 hour' FROM generate_series(1, 20) AS n;
INSERT INTO execution (action, action_ref, config, worker, status, created, updated)
SELECT action.id, action.ref, '{}', 1000 + 1 + n % 20,
       (CAST('{scheduled,running,running}' AS execution_status[]))[1 + n % 3], now(), now()
  FROM action, generate_series(1, 300) AS n
"""

# Beyond every limit there is: a younger one would be waited for, until its worker has been watched for long enough.
_STALE = """
INSERT INTO execution (action, action_ref, config, worker, status, created, updated)
SELECT action.id, action.ref, '{}', $2, 'scheduled', moment, moment
  FROM action, generate_series(1, CAST($1 AS integer)) AS n,
       LATERAL (SELECT now() - interval '2 hours' + n * interval '1 millisecond' AS moment) AS then_
"""


@asynccontextmanager
async def stale_stage(
    world: World, *, history: int, stale: int, template: str | None = None
) -> AsyncIterator[Stage]:
    """A vhost with the executor's queues, and a database with `history` ended and `stale` scheduled executions."""
    name = f"bench_{uuid.uuid4().hex[:12]}"
    folder = world.folder / name
    folder.mkdir()
    try:
        stage = Stage(
            amqp_url=await world.servers.rabbitmq.create_vhost(name),
            database_url=await world.servers.postgresql.create_database(name, template or world.template),
            letters=stale,
            folder=folder,
        )
        await _declare(stage.amqp_url)
        await _fill(stage, history=history, stale=stale)
        yield stage
    finally:
        await world.servers.rabbitmq.delete_vhost(name)
        await world.servers.postgresql.drop_database(name)


async def _declare(amqp_url: str) -> None:
    connection = await open_connection(amqp_url)
    async with connection:
        channel = await connection.channel()
        await topology.declare_common(channel)
        await topology.declare_executor(channel)


async def _fill(stage: Stage, *, history: int, stale: int) -> None:
    async with stage.session() as session:
        await session.execute("SET session_replication_role = replica")
        for first in range(1, history + 1, INSERTED_AT_ONCE):
            await session.execute(_HISTORY, first, min(first + INSERTED_AT_ONCE - 1, history), WORKER_ID)
        await session.execute(_LIVE)
        if stale:
            await session.execute(_STALE, stale, WORKER_ID)
        await session.execute("VACUUM (ANALYZE) execution")
        await session.execute("CHECKPOINT")


async def count_with_status(stage: Stage, status: str) -> int:
    async with stage.session() as session:
        count: int = await session.fetchval("SELECT count(*) FROM execution WHERE status = $1", status)
    return count
