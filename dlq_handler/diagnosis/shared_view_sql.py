"""The leader's last observation, in one row that other replicas and commands read."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction

# A shared view is valid for this many of the leader's intervals.
VALID_INTERVALS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedView:
    at: datetime
    age_seconds: float
    interval_seconds: float
    replica: str
    """The one that shared it."""
    parts: list[str] | None
    """None: they were not asked for, or are not newer than what the reader has."""

    @property
    def is_valid(self) -> bool:
        return self.age_seconds <= VALID_INTERVALS * self.interval_seconds


async def share(
    tx: Transaction, parts: Sequence[str], *, at: datetime, interval_seconds: float, replica: str
) -> None:
    """An older observation never replaces a newer one: two replicas may take themselves for the leader."""
    await tx.run(
        """
        INSERT INTO own.shared_view (id, at, interval_seconds, replica, parts)
        VALUES (1, :at, :interval, :replica, CAST(:parts AS text[]))
        ON CONFLICT (id) DO UPDATE
           SET at = excluded.at, interval_seconds = excluded.interval_seconds, replica = excluded.replica,
               parts = excluded.parts
         WHERE shared_view.at < excluded.at
        """,
        at=at,
        interval=float(interval_seconds),
        replica=replica,
        parts=list(parts),
    )


async def withdraw(database: Database, replica: str) -> None:
    """The view of a replica that stops is no longer valid. It is kept for the replica that starts next."""
    async with database.transaction() as tx:
        await tx.run(
            "UPDATE own.shared_view SET interval_seconds = 0 WHERE replica = :replica", replica=replica
        )


async def read_shared(database: Database, *, newer_than: datetime | None = None) -> SharedView | None:
    """None: no leader has shared one yet. Its parts only if it is newer than that: they may be megabytes."""
    async with database.transaction() as tx:
        row = await tx.row(
            """
            SELECT at, interval_seconds, replica,
                   CASE WHEN CAST(:newer_than AS timestamptz) IS NULL OR at > :newer_than THEN parts END AS parts,
                   CAST(extract(epoch FROM clock_timestamp() - at) AS double precision) AS age
              FROM own.shared_view WHERE id = 1
            """,
            newer_than=newer_than,
        )
    if row is None:
        return None
    return SharedView(
        at=row.at,
        age_seconds=row.age,
        interval_seconds=row.interval_seconds,
        replica=row.replica,
        parts=row.parts,
    )
