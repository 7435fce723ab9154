"""Attune's admission: how many executions of one action may be under way, and who waits in which order.

Only statements; each function runs inside the caller's transaction. One entry per execution: `active` (holds
a slot) or `queued` (stands in the line).
"""

from dataclasses import dataclass

from sandbox.attune.database import Session

_LIMIT = """
SELECT threshold
  FROM policy
 WHERE action = $1
    OR (action IS NULL AND pack = (SELECT pack FROM action WHERE id = $1))
    OR (action IS NULL AND pack IS NULL)
 ORDER BY action IS NULL, pack IS NULL, created DESC, id DESC
 LIMIT 1
"""

_LOCK_STATE = """
INSERT INTO execution_admission_state (action_id, group_key, max_concurrent)
VALUES ($1, $2, $3)
ON CONFLICT (action_id, group_key_normalized) DO UPDATE SET max_concurrent = excluded.max_concurrent
RETURNING id, next_queue_order, max_concurrent
"""

_TAKE_PLACE = """
INSERT INTO execution_admission_entry (state_id, execution_id, status, queue_order, activated_at)
VALUES ($1, $2, $3, $4, CASE WHEN $3 = 'active' THEN now() END)
"""

_LOCK_ENTRY = """
SELECT entry.id, entry.state_id, entry.queue_order, entry.status, state.action_id
  FROM execution_admission_entry AS entry
  JOIN execution_admission_state AS state ON state.id = entry.state_id
 WHERE entry.execution_id = $1
   FOR UPDATE
"""

_PROMOTE_HEAD = """
UPDATE execution_admission_entry
   SET status = 'active', activated_at = now()
 WHERE id = (SELECT id FROM execution_admission_entry
              WHERE state_id = $1 AND status = 'queued'
              ORDER BY queue_order LIMIT 1)
RETURNING execution_id
"""

_REFRESH_STATS = """
INSERT INTO queue_stats (action_id, queue_length, active_count, max_concurrent, oldest_enqueued_at,
                         total_enqueued, total_completed, last_updated)
SELECT $1,
       count(*) FILTER (WHERE entry.status = 'queued'),
       count(*) FILTER (WHERE entry.status = 'active'),
       (SELECT max(max_concurrent) FROM execution_admission_state WHERE action_id = $1),
       min(entry.enqueued_at) FILTER (WHERE entry.status = 'queued'),
       (SELECT sum(total_enqueued) FROM execution_admission_state WHERE action_id = $1),
       (SELECT sum(total_completed) FROM execution_admission_state WHERE action_id = $1),
       now()
  FROM execution_admission_state AS state
  LEFT JOIN execution_admission_entry AS entry ON entry.state_id = state.id
 WHERE state.action_id = $1
ON CONFLICT (action_id) DO UPDATE
   SET queue_length = excluded.queue_length, active_count = excluded.active_count,
       max_concurrent = excluded.max_concurrent, oldest_enqueued_at = excluded.oldest_enqueued_at,
       total_enqueued = excluded.total_enqueued, total_completed = excluded.total_completed,
       last_updated = excluded.last_updated
"""


_TYPE_OF_SUM = """
SELECT pg_typeof(sum(total_enqueued))::text FROM execution_admission_state WHERE action_id = $1
"""


class UndecodableSum(Exception):
    """D15: Attune reads the totals as bigint, and the sum of bigint is numeric. The transaction is rolled back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A slot that was given back, and the execution that now holds it."""

    state_id: int
    action_id: int
    queue_order: int
    promoted: int | None


async def concurrency_limit(session: Session, action_id: int) -> int | None:
    """The newest policy of the action, else of its pack, else the global one; None: no limit."""
    limit: int | None = await session.fetchval(_LIMIT, action_id)
    return limit


async def admit(
    session: Session, *, execution_id: int, action_id: int, limit: int, group_key: str | None = None
) -> bool:
    """Take a slot, or a place at the end of the line. An execution that holds a slot already keeps it."""
    state = await session.fetchrow(_LOCK_STATE, action_id, group_key, limit)
    assert state is not None  # noqa: S101  # the upsert always returns its row
    held = await session.fetchval(
        "SELECT status FROM execution_admission_entry WHERE execution_id = $1", execution_id
    )
    if held is not None:
        return bool(held == "active")
    entries = await session.fetchval(
        "SELECT count(*) FROM execution_admission_entry WHERE state_id = $1", state["id"]
    )
    # Waiting executions go first: while one waits there are at least `limit` entries.
    status = "active" if entries < state["max_concurrent"] else "queued"
    await session.execute(_TAKE_PLACE, state["id"], execution_id, status, state["next_queue_order"])
    await session.execute(
        """UPDATE execution_admission_state
              SET next_queue_order = next_queue_order + 1, total_enqueued = total_enqueued + 1
            WHERE id = $1""",
        state["id"],
    )
    await _refresh_stats(session, action_id)
    return status == "active"


async def release(session: Session, execution_id: int) -> Release | None:
    """Give the slot back and promote the head of the line. Without an active entry nothing happens."""
    entry = await session.fetchrow(_LOCK_ENTRY, execution_id)
    if entry is None or entry["status"] != "active":
        return None
    await session.execute("DELETE FROM execution_admission_entry WHERE id = $1", entry["id"])
    await session.execute(
        "UPDATE execution_admission_state SET total_completed = total_completed + 1 WHERE id = $1",
        entry["state_id"],
    )
    promoted = await session.fetchval(_PROMOTE_HEAD, entry["state_id"])
    await _refresh_stats(session, entry["action_id"])
    return Release(
        state_id=entry["state_id"],
        action_id=entry["action_id"],
        queue_order=entry["queue_order"],
        promoted=promoted,
    )


async def _refresh_stats(session: Session, action_id: int) -> None:
    kind = await session.fetchval(_TYPE_OF_SUM, action_id)
    if kind != "bigint":
        raise UndecodableSum(f"action {action_id}: the sum of its totals is {kind}, not bigint")
    await session.execute(_REFRESH_STATS, action_id)


async def restore(session: Session, execution_id: int, released: Release) -> None:
    """Undo a release whose promoted execution could not be requested; the completion event, redelivered, repeats it."""
    await session.execute(_TAKE_PLACE, released.state_id, execution_id, "active", released.queue_order)
    await session.execute(
        """UPDATE execution_admission_entry SET status = 'queued', activated_at = NULL
            WHERE execution_id = $1""",
        released.promoted,
    )
    await session.execute(
        "UPDATE execution_admission_state SET total_completed = total_completed - 1 WHERE id = $1",
        released.state_id,
    )
    await _refresh_stats(session, released.action_id)
