"""What dlq-handler's own records say about orphans."""

from dlq_handler.database.transaction import Transaction


async def worker_ids_on_record(tx: Transaction) -> frozenset[int]:
    """Workers of groups of dead letters and of flows. Some have no row any more."""
    [row] = await tx.rows(
        """
        SELECT coalesce(array_agg(DISTINCT worker_id), '{}') AS ids
          FROM (SELECT worker_id FROM own.letter_group UNION ALL SELECT worker_id FROM own.flow) AS known
         WHERE worker_id IS NOT NULL
        """
    )
    return frozenset(row.ids)


async def leaked_queues(tx: Transaction) -> dict[str, str]:
    """Queues that a stop could not delete, each with the id of its flow."""
    rows = await tx.rows(
        """
        SELECT f.id, leaked.name FROM own.flow f, jsonb_array_elements_text(f.leaked) AS leaked(name)
         WHERE f.leaked <> '[]'
        """
    )
    return {row.name: row.id for row in rows}


async def count_retirements(tx: Transaction) -> int:
    """Those that are under way."""
    [row] = await tx.rows(
        "SELECT count(*) AS live FROM own.flow WHERE kind = 'retirement' AND status <> 'stopped'"
    )
    count: int = row.live
    return count
