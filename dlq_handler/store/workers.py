"""Which workers are registered, for the bindings of their queues."""

from dlq_handler.store.engine import Database


async def worker_ids(database: Database) -> frozenset[int]:
    """Every worker that takes dispatches, whatever its state: letters die in the queue of a dead one, too."""
    async with database.transaction() as tx:
        # Through jsonb, so that a host whose workers have no role is no error: there, every worker counts.
        rows = await tx.rows(
            "SELECT id FROM worker w WHERE coalesce(to_jsonb(w) ->> 'worker_role', 'action') = 'action'"
        )
    return frozenset(row.id for row in rows)
