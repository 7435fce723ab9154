"""Bring our own tables up to date.

Safe from any number of replicas at once; asks for no right to create when there is nothing to create. Never
touches the host's schema.
"""

from functools import cache
from pathlib import Path

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction, quoted
from dlq_handler.errors import SchemaUnfit, Unavailable

# Indexes on millions of letters are built while everybody waits for them: given up half-way, it begins anew.
MIGRATION_TIMEOUT_MS = 600_000

# Any constant will do as long as it stays the same: replicas of all versions must meet at it.
_LOCK_CLASS = 1_145_852_232


async def upgrade(database: Database) -> None:
    """Create our schema if it is missing and apply what is missing in it."""
    if await is_current(database):
        return
    async with database.transaction(
        statement_timeout_ms=MIGRATION_TIMEOUT_MS,
        lock_timeout_ms=MIGRATION_TIMEOUT_MS,
        search_path=quoted(database.own_schema),
    ) as tx:
        # Of the transaction, not of the session: behind a pooler a session's lock would stay with a stranger.
        await tx.run(
            "SELECT pg_advisory_xact_lock(:lock_class, hashtext(:schema))",
            lock_class=_LOCK_CLASS,
            schema=tx.own_schema,
        )
        # IF NOT EXISTS alone asks for the right to create even when there is nothing to create.
        found = await tx.row("SELECT 1 FROM pg_namespace WHERE nspname = :schema", schema=tx.own_schema)
        if found is None:
            await tx.run(f"CREATE SCHEMA {quoted(tx.own_schema)}")
        from dlq_handler.database import apply_migrations as apply  # noqa: PLC0415 (slow to import, seldom needed)

        try:
            await tx.connection.run_sync(apply.apply_migrations, database.own_schema)
        except apply.MadeByNewer as error:
            raise Unavailable(
                "database",
                f"our schema {tx.own_schema!r} was made by a newer dlq-handler ({error}); run that version",
            ) from error


async def is_current(database: Database) -> bool:
    return await version(database) == head()


async def check_current(database: Database) -> None:
    explanation = why_unfit(await version(database))
    if explanation is not None:
        raise SchemaUnfit(explanation)


def why_unfit(found: str | None) -> str | None:
    """Why this program cannot use tables of that version, with what to do; None: it can."""
    if found == head():
        return None
    is_newer = found is not None and found > head()
    action = "run the newer dlq-handler" if is_newer else "run `dlq-handler migrate`"
    return f"the tables of dlq-handler have version {found or 'none'}, this program needs {head()}; {action}"


@cache
def head() -> str:
    """The version that this program was written for."""
    return max(file.name[:4] for file in Path(__file__).with_name("migrations").glob("versions/[0-9]*.py"))


async def version(database: Database) -> str | None:
    """Of our tables; None when there are none."""
    async with database.transaction() as tx:
        if not await _has_version_table(tx):
            return None
        row = await tx.row("SELECT version_num FROM own.alembic_version")
        return str(row.version_num) if row else None


async def _has_version_table(tx: Transaction) -> bool:
    row = await tx.row(
        "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = :schema AND c.relname = 'alembic_version'",
        schema=tx.own_schema,
    )
    return row is not None
