"""Create and upgrade the tables of dlq-handler. Any number of replicas may do so at once.

Migrations only expand, so a replica of an older version works on newer tables (docs/how-to/upgrade.md). The host's
schema is never touched, and no right to create is needed when there is nothing to create.
"""

import asyncio
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dlq_handler import __version__
from dlq_handler.database.engine import Database
from dlq_handler.database.postgres_values import quoted
from dlq_handler.database.transaction import Transaction
from dlq_handler.errors import SchemaUnfit, Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    version: str | None
    """Of the newest migration that was applied. None: there are no tables."""
    least_program_version: str | None
    """The oldest program that can use these tables. None: there are none, or a version before 0.1.0 made them."""
    known: Collection[str]
    """Versions of the migrations that this program has."""
    program_version: str

    @property
    def wanted(self) -> str:
        return max(self.known)

    @property
    def is_newer(self) -> bool:
        return self.version is not None and self.version > self.wanted

    @property
    def needs_upgrade(self) -> bool:
        """The program has migrations that are not applied, and can apply them."""
        return self.version is None or (self.least_program_version is not None and self.version < self.wanted)

    @property
    def problem(self) -> str | None:
        """Why this program cannot use the tables, and what to do. None: it can."""
        if self.version is None:
            return (
                f"The tables of dlq-handler are missing (version {self.wanted}). Run `dlq-handler migrate`."
            )
        if self.least_program_version is None:
            return (
                f"The tables of dlq-handler have version {self.version} of a development before 0.1.0, which cannot "
                "be upgraded. Drop their schema, then run `dlq-handler migrate`."
            )
        if self.needs_upgrade:
            return (
                f"The tables of dlq-handler have version {self.version}; this program needs {self.wanted}. "
                "Run `dlq-handler migrate`."
            )
        if _as_numbers(self.program_version) < _as_numbers(self.least_program_version):
            return (
                f"The tables of dlq-handler have version {self.version}, which needs dlq-handler "
                f"{self.least_program_version} or newer; this is {self.program_version}. Upgrade dlq-handler."
            )
        return None

    @property
    def note(self) -> str | None:
        """For tables that are newer than this program and usable."""
        if self.problem is not None or not self.is_newer:
            return None
        return (
            f"The tables of dlq-handler have version {self.version}, newer than {self.wanted} of this program "
            f"({self.program_version}). It works with them; finish the upgrade of all replicas."
        )

    def check(self) -> None:
        if self.problem is not None:
            raise SchemaUnfit(self.problem)


def _as_numbers(version: str) -> tuple[int, ...]:
    """`1.10.0rc1` is older than nothing and newer than `1.9.3`: only the numbers of the release count."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


VERSIONS = Path(__file__).with_name("migrations") / "versions"

MIGRATION_TIMEOUT_MS = 600_000

# The same constant in every version, or replicas of two versions would migrate at the same time.
_LOCK_CLASS = 1_145_852_232


async def upgrade(database: Database) -> SchemaVersion:
    """Create the schema of dlq-handler if it is missing, then apply the missing migrations, each in a transaction.

    Raises `SchemaUnfit` for tables that this program can neither use nor upgrade.
    """
    while (found := await read_version(database)).needs_upgrade:
        await _apply_next(database, found)
    found.check()
    return found


async def _apply_next(database: Database, found: SchemaVersion) -> None:
    # Alembic takes a fifth of the time that a command needs to start, so it is imported only when there is work.
    from dlq_handler.database import apply_migrations as alembic  # noqa: PLC0415

    step = alembic.next_step(VERSIONS, found.version)
    for name, statement in step.concurrent_indexes.items():
        await build_index(database, name, statement)
    async with database.transaction(
        statement_timeout_ms=MIGRATION_TIMEOUT_MS,
        lock_timeout_ms=MIGRATION_TIMEOUT_MS,
        search_path=quoted(database.own_schema),
    ) as tx:
        # A lock of the transaction: behind a pooler, a lock of the session would stay with a connection of others.
        await tx.run(
            "SELECT pg_advisory_xact_lock(:lock_class, hashtext(:schema))",
            lock_class=_LOCK_CLASS,
            schema=tx.own_schema,
        )
        if (await _read(tx)).version != found.version:
            return
        # `IF NOT EXISTS` alone needs the right to create even when the schema exists.
        schema = await tx.row("SELECT 1 FROM pg_namespace WHERE nspname = :schema", schema=tx.own_schema)
        if schema is None:
            await tx.run(f"CREATE SCHEMA {quoted(tx.own_schema)}")
        await tx.connection.run_sync(alembic.apply, VERSIONS, database.own_schema, step.revision)


async def check_usable(database: Database) -> SchemaVersion:
    """Raises `SchemaUnfit` if this program cannot use the tables as they are."""
    found = await read_version(database)
    found.check()
    return found


async def read_version(database: Database) -> SchemaVersion:
    async with database.transaction() as tx:
        return await _read(tx)


async def _read(tx: Transaction) -> SchemaVersion:
    # By the catalog first: a statement that names a missing table is an error.
    rows = await tx.rows(
        """
        SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = :schema AND c.relname IN ('alembic_version', 'compatibility')
        """,
        schema=tx.own_schema,
    )
    present = {row.relname for row in rows}
    version = least = None
    if "alembic_version" in present:
        row = await tx.row("SELECT version_num FROM own.alembic_version")
        version = None if row is None else str(row.version_num)
    if "compatibility" in present:
        row = await tx.row("SELECT least_program_version FROM own.compatibility")
        least = None if row is None else str(row.least_program_version)
    return version_of(version, least)


def version_of(version: str | None, least_program_version: str | None) -> SchemaVersion:
    return SchemaVersion(
        version=version,
        least_program_version=least_program_version,
        known=known_versions(),
        program_version=__version__,
    )


@cache
def known_versions(folder: Path | None = None) -> Collection[str]:
    return frozenset(file.name[:4] for file in (folder or VERSIONS).glob("[0-9]*.py"))


# Interval between checks of a build that another replica began.
_POLL_SECONDS = 1.0


async def build_index(database: Database, name: str, statement: str) -> None:
    """Build this index of the schema of dlq-handler unless it is there. Waits for a build of another replica.

    PostgreSQL refuses `CREATE INDEX CONCURRENTLY` in a transaction, so a migration names its indexes in
    `CONCURRENT_INDEXES`, and records its version after they are built.

    An interrupted build leaves an index that PostgreSQL keeps up to date and never reads: it is dropped first.
    """
    while (state := await _index_state(database, name)) == "building":  # noqa: ASYNC110  # another process builds it
        await asyncio.sleep(_POLL_SECONDS)  # the other replica cannot set an event here
    if state == "valid":
        return
    if state == "invalid":
        await database.run_outside_transaction(f"DROP INDEX CONCURRENTLY IF EXISTS own.{quoted(name)}")
    await database.run_outside_transaction(statement)
    if await _index_state(database, name) != "valid":
        raise Unavailable("database", f"index {name}: {statement} did not build it")


async def _index_state(database: Database, name: str) -> str:
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
