"""The host's workers: which are registered, and what their rows say. Read only.

Hosts keep the rows of dead workers for ever, so there may be thousands: each question is one statement.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.postgres_values import age_seconds, readable
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.worker import RegisteredWorker, Worker


async def worker_ids(database: Database) -> frozenset[int]:
    async with database.transaction() as tx:
        return await read_worker_ids(tx)


async def read_worker_ids(tx: Transaction) -> frozenset[int]:
    """Every worker that takes dispatches, whatever its state: messages expire in the queue of a dead one, too."""
    # One array: thousands of rows every two seconds would cost the event loop ten times as much. `worker_role` is the
    # table's column or, on a host whose workers have no role, the outer one: there, every worker counts. To ask for it
    # through to_jsonb would make JSON of all of them.
    [row] = await tx.rows(
        """
        SELECT coalesce(array_agg(registered.id), '{}') AS ids
          FROM (SELECT CAST('action' AS text) AS worker_role) AS fallback,
               LATERAL (SELECT id, CAST(worker_role AS text) AS role FROM worker) AS registered
         WHERE registered.role = 'action'
        """
    )
    return frozenset(row.ids)


async def read_fleet(
    database: Database, *, heard_within_seconds: float | None = None, also: Collection[int] = ()
) -> list[Worker]:
    """Workers that take dispatches: all, or those with a heartbeat within this time and `also` these."""
    # Hosts keep the rows of dead workers for ever: reading thousands of them often would block the event loop. Arrays,
    # as in `read_worker_ids`.
    async with database.transaction() as tx:
        [fleet] = await tx.rows(
            f"""
            SELECT coalesce(array_agg(found.id), '{{}}') AS ids, coalesce(array_agg(found.status), '{{}}') AS statuses,
                   coalesce(array_agg(found.last_heartbeat), '{{}}') AS last_heartbeats,
                   coalesce(array_agg(found.age), '{{}}') AS ages
              FROM (SELECT registered.id, registered.status, {readable("registered.last_heartbeat")} AS last_heartbeat,
                           {age_seconds("registered.last_heartbeat")} AS age
                      FROM (SELECT CAST('action' AS text) AS worker_role) AS fallback,
                           LATERAL (SELECT id, last_heartbeat, CAST(status AS text) AS status,
                                           CAST(worker_role AS text) AS role FROM worker) AS registered
                     WHERE registered.role = 'action'
                       AND (CAST(:within AS double precision) IS NULL OR registered.id = ANY (CAST(:also AS bigint[]))
                            OR {age_seconds("registered.last_heartbeat")} <= :within)) AS found
            """,  # noqa: S608  # constant text
            within=heard_within_seconds,
            also=sorted(also),
        )
    return [
        Worker(id=one, heartbeat_age_seconds=age, last_heartbeat=last_heartbeat, status=status)
        for one, age, last_heartbeat, status in zip(
            fleet.ids, fleet.ages, fleet.last_heartbeats, fleet.statuses, strict=True
        )
    ]


async def read_workers(tx: Transaction, ids: Iterable[int] | None = None) -> dict[int, Worker]:
    """Without ids: all workers. An id that is missing from the answer has no row."""
    rows = await tx.rows(
        f"""
        SELECT id, {readable("last_heartbeat")} AS last_heartbeat, {age_seconds("last_heartbeat")} AS age
          FROM worker WHERE CAST(:ids AS bigint[]) IS NULL OR id = ANY (CAST(:ids AS bigint[]))
        """,  # noqa: S608  # constant text
        ids=None if ids is None else sorted(set(ids)),
    )
    return {row.id: _worker(row) for row in rows}


async def worker_names(database: Database) -> dict[int, str]:
    async with database.transaction() as tx:
        rows = await tx.rows("SELECT id, name FROM worker")
    return {row.id: row.name for row in rows}


async def workers_with_dispatches(database: Database) -> frozenset[int]:
    """Those that executions are scheduled on. Reads every scheduled execution: not for every few seconds."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            "SELECT DISTINCT worker FROM execution WHERE status = 'scheduled' AND worker IS NOT NULL"
        )
    return frozenset(row.worker for row in rows)


async def oldest_runs(tx: Transaction) -> dict[int, datetime]:
    """The workers that executions run on, each with the `updated` of its oldest running execution."""
    rows = await tx.rows(
        """
        SELECT worker, min(updated) AS oldest FROM execution
         WHERE status = 'running' AND worker IS NOT NULL GROUP BY worker
        """
    )
    return {row.worker: row.oldest for row in rows}


async def list_workers(database: Database) -> list[RegisteredWorker]:
    """All of them, sensors too, by id."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            f"""
            SELECT w.id, w.name, CAST(w.status AS text) AS status,
                   {readable("w.last_heartbeat")} AS last_heartbeat, {age_seconds("w.last_heartbeat")} AS age,
                   to_jsonb(w) ->> 'worker_role' AS role, to_jsonb(w) ->> 'cordon_reason' AS cordon_reason,
                   coalesce(to_jsonb(w) ->> 'cordoned', 'false') = 'true' AS is_cordoned,
                   to_jsonb(w) ->> 'host' AS host, CAST(to_jsonb(w) ->> 'updated' AS timestamptz) AS updated,
                   coalesce(load.scheduled, 0) AS scheduled, coalesce(load.running, 0) AS running,
                   {age_seconds("load.oldest")} AS waited
              FROM worker w
              LEFT JOIN (SELECT worker, count(*) FILTER (WHERE status = 'scheduled') AS scheduled,
                                count(*) FILTER (WHERE status = 'running') AS running,
                                min(updated) FILTER (WHERE status = 'scheduled') AS oldest
                           FROM execution WHERE status IN ('scheduled', 'running') GROUP BY worker
                        ) AS load ON load.worker = w.id
             ORDER BY w.id
            """  # noqa: S608  # constant text
        )
    return [
        RegisteredWorker(
            worker=_worker(row),
            name=row.name,
            status=row.status,
            role=row.role,
            is_cordoned=row.is_cordoned,
            cordon_reason=row.cordon_reason,
            scheduled=row.scheduled,
            running=row.running,
            oldest_scheduled_seconds=row.waited,
            host=row.host,
            updated=row.updated,
        )
        for row in rows
    ]


async def read_worker_and_time(database: Database, worker_id: int) -> tuple[Worker | None, datetime]:
    """The worker, None when its row was deleted, and the database's clock."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            f"""
            SELECT w.id, CAST(w.status AS text) AS status, {readable("w.last_heartbeat")} AS last_heartbeat,
                   {age_seconds("w.last_heartbeat")} AS age, clock_timestamp() AS now
              FROM (VALUES (1)) AS one(row) LEFT JOIN worker w ON w.id = :id
            """,  # noqa: S608  # constant text
            id=worker_id,
        )
    [row] = rows
    return (None if row.id is None else replace(_worker(row), status=row.status)), row.now


def _worker(row: Row[Any]) -> Worker:
    return Worker(id=row.id, heartbeat_age_seconds=row.age, last_heartbeat=row.last_heartbeat)
