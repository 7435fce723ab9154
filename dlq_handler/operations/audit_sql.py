"""The audit: what people did, written in the transaction that did it. Appended, never changed."""

from datetime import datetime

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.history import events_sql
from dlq_handler.history.event import OPERATION_RECORDED, Part
from dlq_handler.operations.operation import Operation
from dlq_handler.text import storable


async def record(
    tx: Transaction,
    *,
    who: str,
    via: str,
    what: str,
    target: str | None,
    reason: str | None,
    result: str,
) -> int:
    """Late in its transaction: it is told of too, and whoever tells something makes others wait."""
    [row] = await tx.rows(
        """
        INSERT INTO own.operation (at, who, via, what, target, reason, result)
        VALUES (clock_timestamp(), :who, :via, :what, :target, :reason, :result) RETURNING id
        """,
        who=storable(who),
        via=via,
        what=what,
        target=None if target is None else storable(target),
        reason=None if reason is None else storable(reason),
        result=storable(result),
    )
    await events_sql.tell(
        tx, part=Part.AUDIT, kind=OPERATION_RECORDED, subject=what, detail=target, instance=who
    )
    return int(row.id)


async def list_operations(
    database: Database,
    *,
    before_id: int | None = None,
    limit: int = 50,
    what: str | None = None,
    who: str | None = None,
    since: datetime | None = None,
) -> list[Operation]:
    """Newest first. `before_id` continues after the last one of the page before."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            SELECT * FROM own.operation
             WHERE (CAST(:before_id AS bigint) IS NULL OR id < :before_id)
               AND (CAST(:what AS text) IS NULL OR what = :what)
               AND (CAST(:who AS text) IS NULL OR who = :who)
               AND (CAST(:since AS timestamptz) IS NULL OR at >= :since)
             ORDER BY id DESC LIMIT :limit
            """,
            before_id=before_id,
            what=None if what is None else storable(what),
            who=None if who is None else storable(who),
            since=since,
            limit=limit,
        )
    return [Operation(**row._asdict()) for row in rows]


async def delete_old(database: Database, *, older_than_seconds: float) -> int:
    async with database.transaction() as tx:
        result = await tx.run(
            "DELETE FROM own.operation WHERE at < now() - make_interval(secs => :age)",
            age=float(older_than_seconds),
        )
    return result.rowcount
