"""Canaries, shared by all processes: one sends, another may receive. All times are by the database clock."""

from collections.abc import Collection, Mapping
from datetime import datetime
from uuid import UUID

from dlq_handler.database.engine import Database
from dlq_handler.topology.canary import Probe
from dlq_handler.topology.canary_run import StoredCanary

# The time of the last arrival is shown for this long, whatever became of later canaries.
KEPT_SECONDS = 86_400.0


async def read_probes(
    database: Database, queue: str, *, among: Collection[UUID] | None = None
) -> list[Probe]:
    """Of each worker the newest received one and later ones: those that are to arrive in this queue, `among` some."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            SELECT worker_id, ttl_seconds,
                   CAST(extract(epoch FROM clock_timestamp() - created_at) AS double precision) AS created,
                   CAST(extract(epoch FROM clock_timestamp() - sent_at) AS double precision) AS sent,
                   CAST(extract(epoch FROM received_at - sent_at) AS double precision) AS took
              FROM (SELECT worker_id, ttl_seconds, created_at, sent_at, received_at,
                           max(created_at) FILTER (WHERE received_at IS NOT NULL)
                               OVER (PARTITION BY worker_id) AS newest_received_created_at
                      FROM own.canary
                     WHERE queue = :queue
                       AND (CAST(:among AS uuid[]) IS NULL OR id = ANY (CAST(:among AS uuid[])))) AS canary
             WHERE newest_received_created_at IS NULL OR created_at >= newest_received_created_at
            """,
            queue=queue,
            among=None if among is None else list(among),
        )
    return [
        Probe(
            worker_id=row.worker_id,
            ttl_seconds=row.ttl_seconds,
            created_seconds_ago=row.created,
            sent_seconds_ago=row.sent,
            took_seconds=row.took,
        )
        for row in rows
    ]


async def read_stages(
    database: Database, ids: Collection[UUID]
) -> tuple[dict[UUID, StoredCanary], float | None]:
    """These canaries, and how many seconds ago the newest received canary of any sender was written.

    None: no canary was received.
    """
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            SELECT id, created_at, ttl_seconds,
                   CAST(extract(epoch FROM clock_timestamp() - created_at) AS double precision) AS age,
                   CAST(extract(epoch FROM sent_at - created_at) AS double precision) AS confirmed,
                   CAST(extract(epoch FROM received_at - created_at) AS double precision) AS received, received_by
              FROM own.canary WHERE id = ANY (CAST(:ids AS uuid[]))
            """,
            ids=list(ids),
        )
        [newest] = await tx.rows(
            """
            SELECT CAST(extract(epoch FROM clock_timestamp() - max(created_at)) AS double precision) AS age
              FROM own.canary WHERE received_at IS NOT NULL
            """
        )
    stored = {
        row.id: StoredCanary(
            id=row.id,
            created_at=row.created_at,
            ttl_seconds=row.ttl_seconds,
            age_seconds=row.age,
            confirmed_seconds=row.confirmed,
            received_seconds=row.received,
            received_by=row.received_by,
        )
        for row in rows
    }
    return stored, newest.age


async def add_probes(
    database: Database, worker_of: Mapping[UUID, int], *, queue: str, ttl_seconds: float, by: str
) -> datetime:
    """Before they are sent: one that arrives must find its row. The database's clock."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            WITH added AS (
                INSERT INTO own.canary (id, worker_id, queue, ttl_seconds, created_at, sent_by)
                SELECT probe.id, probe.worker_id, :queue, :ttl, clock_timestamp(), :by
                  FROM unnest(CAST(:ids AS uuid[]), CAST(:workers AS bigint[])) AS probe(id, worker_id))
            SELECT clock_timestamp() AS now
            """,
            ids=list(worker_of),
            workers=list(worker_of.values()),
            queue=queue,
            ttl=ttl_seconds,
            by=by,
        )
    [row] = rows
    now: datetime = row.now
    return now


async def mark_sent(database: Database, ids: Collection[UUID]) -> None:
    """The broker has taken them over."""
    async with database.transaction() as tx:
        await tx.run(
            "UPDATE own.canary SET sent_at = coalesce(sent_at, clock_timestamp())"
            " WHERE id = ANY (CAST(:ids AS uuid[]))",
            ids=list(ids),
        )


async def mark_seen(database: Database, ids: Collection[UUID], *, queue: str, by: str) -> None:
    """They came out of this queue. One that was meant for another, or that is unknown, changes nothing."""
    async with database.transaction() as tx:
        await tx.run(
            """
            WITH known AS MATERIALIZED (
                SELECT id FROM own.canary
                 WHERE id = ANY (CAST(:ids AS uuid[])) AND queue = :queue AND received_at IS NULL
                 ORDER BY id FOR NO KEY UPDATE)
            UPDATE own.canary c
               SET received_at = clock_timestamp(), received_by = :by, sent_at = coalesce(c.sent_at, c.created_at)
              FROM known WHERE c.id = known.id
            """,
            ids=list(ids),
            queue=queue,
            by=by,
        )


async def delete_old(database: Database, queue: str, *, fresh_seconds: float) -> None:
    """Delete canaries that are too old to decide anything. Of each worker the last received one is kept for a day."""
    async with database.transaction() as tx:
        await tx.run(
            """
            DELETE FROM own.canary old
             WHERE old.created_at < clock_timestamp() - make_interval(secs => :kept)
                OR (old.queue = :queue
                    AND old.created_at < clock_timestamp() - make_interval(secs => :fresh + old.ttl_seconds)
                    AND (old.received_at IS NULL OR EXISTS (
                        SELECT FROM own.canary newer
                         WHERE newer.queue = old.queue AND newer.worker_id = old.worker_id
                           AND newer.created_at > old.created_at AND newer.received_at IS NOT NULL)))
            """,
            kept=KEPT_SECONDS,
            queue=queue,
            fresh=fresh_seconds,
        )
