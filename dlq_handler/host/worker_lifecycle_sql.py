"""The host's workers while their queues are retired: locked, cordoned, and what they still have to do.

These are the only statements that change a worker. They need rights of their own (`dlq-handler grants --feature
lifecycle`), and nothing runs them unless `dlq_handler.lifecycle.enabled`.

Promises: a worker is cordoned only if it is not, and uncordoned only if its cordon is dlq-handler's. Never: changes its
status or its heartbeat, or deletes its row.
"""

from collections.abc import Collection
from dataclasses import dataclass

from dlq_handler.database.postgres_values import age_seconds, readable
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.execution import TERMINAL
from dlq_handler.host.worker import Worker

# Below the time for the AMQP calls that follow under the lock.
LOCK_TIMEOUT_MS = 5_000

RETIRING = "dlq-handler: retiring"
"""Reason of dlq-handler's own cordon. An operator who cordons the worker again replaces it, and keeps the cordon."""

_TERMINAL = sorted(status.value for status in TERMINAL)


async def lock_worker(tx: Transaction, worker_id: int) -> Worker | None:
    """Its row as it is now, locked until the transaction ends. None: it has no row, and ids are never used again.

    A registration updates the row before it declares the queues. So a worker that returns while its queue is deleted
    waits here, and then declares it anew. FOR NO KEY UPDATE does not block the scheduler, whose executions refer to
    the row. Raises `Contended` when another transaction holds the row for too long.
    """
    await tx.run("SELECT set_config('lock_timeout', :timeout, true)", timeout=f"{LOCK_TIMEOUT_MS}ms")
    row = await tx.row(
        f"""
        SELECT w.id, CAST(w.status AS text) AS status, {readable("w.last_heartbeat")} AS last_heartbeat,
               {age_seconds("w.last_heartbeat")} AS age
          FROM worker w WHERE w.id = :id FOR NO KEY UPDATE
        """,  # noqa: S608  # constant text
        id=worker_id,
    )
    if row is None:
        return None
    return Worker(
        id=row.id, heartbeat_age_seconds=row.age, last_heartbeat=row.last_heartbeat, status=row.status
    )


async def cordon(tx: Transaction, worker_id: int) -> bool:
    """Stop the scheduler from selecting it. False: it is cordoned already, has no row, or the host knows no cordon."""
    if not await _has_cordon(tx):
        return False
    row = await tx.row(
        """
        UPDATE worker SET cordoned = true, cordon_reason = :reason, cordoned_at = now()
         WHERE id = :id AND NOT cordoned RETURNING id
        """,
        id=worker_id,
        reason=RETIRING,
    )
    return row is not None


async def uncordon(tx: Transaction, worker_id: int) -> bool:
    """Take back dlq-handler's own cordon. False: there is none."""
    if not await _has_cordon(tx):
        return False
    row = await tx.row(
        """
        UPDATE worker SET cordoned = false, cordon_reason = NULL, cordoned_at = NULL
         WHERE id = :id AND cordoned AND cordon_reason = :reason RETURNING id
        """,
        id=worker_id,
        reason=RETIRING,
    )
    return row is not None


async def _has_cordon(tx: Transaction) -> bool:
    row = await tx.row(
        """
        SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('worker')
                         AND attname = 'cordon_reason' AND NOT attisdropped) AS known
        """
    )
    return row is not None and bool(row.known)


async def workers_with_open_executions(tx: Transaction, worker_ids: Collection[int]) -> frozenset[int]:
    """Those of these workers that have an execution which is not final. A status of a newer host is not final."""
    rows = await tx.rows(
        """
        SELECT asked.id FROM unnest(CAST(:ids AS bigint[])) AS asked(id)
         WHERE EXISTS (SELECT FROM execution e
                        WHERE e.worker = asked.id AND CAST(e.status AS text) <> ALL (CAST(:terminal AS text[])))
        """,
        ids=sorted(set(worker_ids)),
        terminal=_TERMINAL,
    )
    return frozenset(row.id for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionAge:
    is_final: bool
    seconds: float | None
    """Since its row was last changed, by the database's clock; None: unknown."""


async def read_execution_age(tx: Transaction, execution_id: int) -> ExecutionAge | None:
    """None: no such row."""
    row = await tx.row(
        f"""
        SELECT CAST(e.status AS text) = ANY (CAST(:terminal AS text[])) AS is_final,
               {age_seconds("e.updated")} AS age
          FROM execution e WHERE e.id = :id
        """,  # noqa: S608  # constant text
        id=execution_id,
        terminal=_TERMINAL,
    )
    return None if row is None else ExecutionAge(is_final=row.is_final, seconds=row.age)
