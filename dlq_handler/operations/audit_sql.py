"""The audit: what people did, written in the transaction that did it. Appended, never changed."""

from datetime import datetime

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.history import events_sql
from dlq_handler.history.event import OPERATION_RECORDED, Topic
from dlq_handler.operations.operation import Operation
from dlq_handler.text import storable


async def record(
    tx: Transaction,
    *,
    username: str,
    client: str,
    action: str,
    target: str | None,
    comment: str | None,
    result: str,
) -> int:
    """Late in its transaction: it is told of too, and whoever tells something makes others wait."""
    [row] = await tx.rows(
        """
        INSERT INTO own.operation (at, username, client, action, target, comment, result)
        VALUES (clock_timestamp(), :username, :client, :action, :target, :comment, :result) RETURNING id
        """,
        username=storable(username),
        client=client,
        action=action,
        target=None if target is None else storable(target),
        comment=None if comment is None else storable(comment),
        result=storable(result),
    )
    await events_sql.tell(
        tx, topic=Topic.AUDIT, kind=OPERATION_RECORDED, subject=action, detail=target, replica=username
    )
    return int(row.id)


async def list_operations(
    database: Database,
    *,
    before_id: int | None = None,
    limit: int = 50,
    action: str | None = None,
    username: str | None = None,
    since: datetime | None = None,
) -> list[Operation]:
    """Newest first. `before_id` continues after the last one of the page before."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            SELECT * FROM own.operation
             WHERE (CAST(:before_id AS bigint) IS NULL OR id < :before_id)
               AND (CAST(:action AS text) IS NULL OR action = :action)
               AND (CAST(:username AS text) IS NULL OR username = :username)
               AND (CAST(:since AS timestamptz) IS NULL OR at >= :since)
             ORDER BY id DESC LIMIT :limit
            """,
            before_id=before_id,
            action=None if action is None else storable(action),
            username=None if username is None else storable(username),
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
