"""The audit: one record per operation, written in its transaction. Appended, never changed."""

from collections.abc import Sequence
from datetime import datetime

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.history import events_sql
from dlq_handler.history.event import OPERATION_RECORDED, Topic
from dlq_handler.operations.operation import Action, Actor, Operation, target_of
from dlq_handler.text import storable


async def record(
    tx: Transaction,
    actor: Actor,
    action: Action,
    *,
    letter_ids: Sequence[int] = (),
    group_id: str | None = None,
    subject: str | None = None,
    comment: str | None = None,
    result: str,
) -> int:
    """Late in its transaction: it also adds a history event, and transactions that add one wait for each other."""
    [row] = await tx.rows(
        """
        INSERT INTO own.operation (at, username, client, action, letter_ids, group_id, subject, comment, result)
        VALUES (clock_timestamp(), :username, :client, :action, :letter_ids, :group_id, :subject, :comment, :result)
        RETURNING id
        """,
        username=storable(actor.username),
        client=actor.client.value,
        action=action.value,
        letter_ids=list(letter_ids),
        group_id=None if group_id is None else storable(group_id),
        subject=None if subject is None else storable(subject),
        comment=None if comment is None else storable(comment),
        result=storable(result),
    )
    await events_sql.record_event(
        tx,
        topic=Topic.AUDIT,
        kind=OPERATION_RECORDED,
        subject=action.value,
        detail=subject or target_of(letter_ids, group_id),
        replica=actor.username,
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
    """Newest first. `before_id`: the id of the last one on the previous page."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            SELECT id, at, username, client, action, letter_ids, group_id, subject, comment, result FROM own.operation
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


async def operations_on(
    database: Database, *, letter_ids: Sequence[int], group_ids: Sequence[str], since: datetime
) -> list[Operation]:
    """Those about one of these dead letters, or about a group of theirs."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            SELECT id, at, username, client, action, letter_ids, group_id, subject, comment, result FROM own.operation
             WHERE at >= :since AND (letter_ids && CAST(:letter_ids AS bigint[])
                                     OR group_id = ANY (CAST(:group_ids AS text[])))
             ORDER BY id DESC LIMIT 500
            """,
            since=since,
            letter_ids=list(letter_ids),
            group_ids=list(group_ids),
        )
    return [Operation(**row._asdict()) for row in rows]


async def delete_old(database: Database, *, older_than_seconds: float) -> int:
    async with database.transaction() as tx:
        result = await tx.run(
            "DELETE FROM own.operation WHERE at < now() - make_interval(secs => :age)",
            age=float(older_than_seconds),
        )
    return result.rowcount
