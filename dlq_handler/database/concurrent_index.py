"""Build an index on a large table while replicas go on writing to it.

For migrations: `CONCURRENT_INDEXES` of a migration names each index with its statement. PostgreSQL refuses
`CREATE INDEX CONCURRENTLY` in a transaction, so the migration records its version after its indexes are built.
"""

import asyncio

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import quoted
from dlq_handler.errors import Unavailable

# A build that another replica began is looked at this often.
_POLL_SECONDS = 1.0


async def build_index(database: Database, name: str, statement: str) -> None:
    """Build this index of the schema of dlq-handler unless it is there. Waits for a build of another replica.

    An interrupted build leaves an index that PostgreSQL keeps up to date and never reads: it is dropped first.
    """
    while (state := await _state(database, name)) == "building":  # noqa: ASYNC110  # another process builds it
        await asyncio.sleep(_POLL_SECONDS)  # the other replica cannot set an event here
    if state == "valid":
        return
    if state == "invalid":
        await database.run_outside_transaction(f"DROP INDEX CONCURRENTLY IF EXISTS own.{quoted(name)}")
    await database.run_outside_transaction(statement)
    if await _state(database, name) != "valid":
        raise Unavailable("database", f"index {name}: {statement} did not build it")


async def _state(database: Database, name: str) -> str:
    async with database.transaction() as tx:
        row = await tx.row(
            """
            SELECT i.indisvalid AS is_valid, EXISTS (
                       SELECT FROM pg_stat_progress_create_index p WHERE p.index_relid = c.oid) AS is_building
              FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_index i ON i.indexrelid = c.oid
             WHERE n.nspname = :schema AND c.relname = :name
            """,
            schema=tx.own_schema,
            name=name,
        )
    if row is None:
        return "missing"
    if row.is_valid:
        return "valid"
    return "building" if row.is_building else "invalid"
