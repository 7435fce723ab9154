"""Sessions that were ended by a logout, until they would have ended by themselves."""

from collections.abc import Sequence
from datetime import datetime

from dlq_handler.database.engine import Database


async def record(database: Database, digest: str, *, until: datetime) -> None:
    """Deletes those whose time is over."""
    async with database.transaction() as tx:
        await tx.run("DELETE FROM own.logout WHERE until < clock_timestamp()")
        await tx.run(
            "INSERT INTO own.logout (digest, until) VALUES (:digest, :until) ON CONFLICT (digest) DO NOTHING",
            digest=digest,
            until=until,
        )


async def recent(database: Database, *, limit: int) -> Sequence[tuple[str, datetime]]:
    async with database.transaction() as tx:
        rows = await tx.rows(
            "SELECT digest, until FROM own.logout WHERE until > clock_timestamp() ORDER BY until DESC LIMIT :most",
            most=limit,
        )
    return [(row.digest, row.until) for row in rows]
