"""The brake's one row, and the count of executions ended.

`host.end_executions` appends to the count in the statement that ends executions, so no writer can forget it.
"""

from dlq_handler.database.transaction import Transaction
from dlq_handler.safety.brake import WINDOW_SECONDS, BrakeState, BrakeView

# Well beyond the window, so that deleting never meets a reader.
KEPT_SECONDS = 180

# Advisory lock class. It must never change: replicas of all versions use it.
_LOCK_CLASS = 1_145_852_235


async def read_brake(tx: Transaction) -> BrakeView:
    """State and count in one statement. The count includes what this transaction has ended."""
    # Joined to a constant row: with an empty table the brake is in its normal state. By the statement's time, because
    # an index cannot be searched by a clock that moves.
    [row] = await tx.rows(
        """
        SELECT clock_timestamp() AS now, b.tripped_at, b.hold_until, b.tripped_by, b.explanation, b.released_at,
               b.released_until, b.released_by,
               (SELECT coalesce(sum(changed), 0) FROM own.change_count
                 WHERE at > statement_timestamp() - make_interval(secs => :window)) AS ended
          FROM (VALUES (1)) AS one(row) LEFT JOIN own.brake b ON true
        """,
        window=float(WINDOW_SECONDS),
    )
    state = BrakeState(
        tripped_at=row.tripped_at,
        hold_until=row.hold_until,
        tripped_by=row.tripped_by,
        explanation=row.explanation,
        released_at=row.released_at,
        released_until=row.released_until,
        released_by=row.released_by,
    )
    return BrakeView(state=state, ended_last_minute=int(row.ended), now=row.now)


async def rehearse(tx: Transaction) -> None:
    """Change nothing, with the right that counting ended executions needs."""
    await tx.run(
        "INSERT INTO own.change_count (at, changed) SELECT at, changed FROM own.change_count WHERE false"
    )


async def lock_room(tx: Transaction) -> None:
    """Wait for all other transactions that hold this lock, and hold it until this one ends.

    It comes first in the lock order (endings/ender.py). A lock of the transaction: it works through a pooler.
    """
    await tx.run(
        "SELECT pg_advisory_xact_lock(:lock_class, hashtext(:schema))",
        lock_class=_LOCK_CLASS,
        schema=tx.own_schema,
    )


async def trip(tx: Transaction, *, by: str, explanation: str, hold_seconds: float) -> bool:
    """True: this call tripped it. Of many at once one trips it, and none does after a release."""
    row = await tx.row(
        """
        INSERT INTO own.brake AS b (tripped_at, hold_until, tripped_by, explanation)
        VALUES (clock_timestamp(), clock_timestamp() + make_interval(secs => NULLIF(:hold, 0)), :by, :explanation)
        ON CONFLICT (singleton) DO UPDATE
           SET tripped_at = excluded.tripped_at, hold_until = excluded.hold_until,
               tripped_by = excluded.tripped_by, explanation = excluded.explanation
         WHERE b.tripped_at IS NULL AND coalesce(b.released_until <= clock_timestamp(), true)
        RETURNING true AS is_tripped
        """,
        hold=float(hold_seconds),
        by=by,
        explanation=explanation,
    )
    return row is not None


async def release(tx: Transaction, *, by: str, for_seconds: float, seen: BrakeState | None = None) -> bool:
    """False: nothing was done, because the state differs from `seen`. `seen` None: release it in any state."""
    row = await tx.row(
        """
        INSERT INTO own.brake AS b (released_at, released_until, released_by)
        VALUES (clock_timestamp(), clock_timestamp() + make_interval(secs => :seconds), :by)
        ON CONFLICT (singleton) DO UPDATE
           SET tripped_at = NULL, hold_until = NULL, tripped_by = NULL, explanation = NULL,
               released_at = excluded.released_at, released_until = excluded.released_until,
               released_by = excluded.released_by
         WHERE CAST(:is_any AS boolean)
            OR (b.tripped_at IS NOT DISTINCT FROM CAST(:tripped_at AS timestamptz)
                AND b.released_at IS NOT DISTINCT FROM CAST(:released_at AS timestamptz))
        RETURNING true AS is_released
        """,
        seconds=float(for_seconds),
        by=by,
        is_any=seen is None,
        tripped_at=seen.tripped_at if seen else None,
        released_at=seen.released_at if seen else None,
    )
    return row is not None


async def delete_old_counts(tx: Transaction) -> None:
    # Every replica deletes; rows that another one has locked are left to it.
    await tx.run(
        """
        DELETE FROM own.change_count WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM own.change_count
             WHERE at < statement_timestamp() - make_interval(secs => :kept) LIMIT 10000 FOR UPDATE SKIP LOCKED))
        """,
        kept=float(KEPT_SECONDS),
    )
