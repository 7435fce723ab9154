"""The least rights of our database role: printed as GRANTs, and looked for.

One list serves both, so that whoever runs what is printed is never told that something is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dlq_handler.store.engine import Database
from dlq_handler.store.transaction import Transaction, quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    """A right on one of the host's tables. With `columns` it is asked for on these alone."""

    table: str
    privilege: str
    columns: tuple[str, ...] = ()
    is_everywhere: bool = False
    """False: a host without this table needs no right on it."""


_HOST_NEEDS = (
    _Need(table="execution", privilege="SELECT", is_everywhere=True),
    _Need(table="execution", privilege="UPDATE", columns=("status", "result"), is_everywhere=True),
    _Need(table="worker", privilege="SELECT", is_everywhere=True),
    _Need(table="action", privilege="SELECT"),
    # Read and written by the host's own triggers, which run with our rights.
    _Need(table="enforcement", privilege="SELECT"),
    _Need(table="execution_admission_state", privilege="SELECT"),
    _Need(table="execution_admission_entry", privilege="SELECT"),
    _Need(table="execution_history", privilege="INSERT"),
    # For `executions explain` and the page of an execution: Attune's own steps.
    _Need(table="execution_history", privilege="SELECT"),
    _Need(table="audit_event", privilege="INSERT"),
)
# Only with `dlq_handler.worker.mark_inactive`, the one thing that we may write about a worker.
_MARKING_NEEDS = (
    _Need(table="worker", privilege="UPDATE", columns=("status",), is_everywhere=True),
    _Need(table="worker_history", privilege="INSERT"),
)
# Only for `dlq-handler game-day`: one row of its own.
_GAME_DAY_NEED = _Need(
    table="execution", privilege="INSERT", columns=("action_ref", "config", "status"), is_everywhere=True
)
_OWN_TABLES = (
    "letter",
    "outbox",
    "stale_verdict",
    "worker_look",
    "lease",
    "brake",
    "change_count",
    "canary",
    "letter_group",
    "letter_minute",
    "swept",
    "swept_group",
    "swept_execution",
    "swept_worker",
    "happening",
    "seen_minute",
    "worker_change",
    "diagnosis_change",
    "operation",
    "mute",
    "notified",
)
_OWN_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE")
_OWN_NEEDS = (
    *(
        _Need(table=table, privilege=privilege, is_everywhere=True)
        for table in _OWN_TABLES
        for privilege in _OWN_PRIVILEGES
    ),
    _Need(table="alembic_version", privilege="SELECT", is_everywhere=True),
)


def _host_needs(*, marks_workers: bool) -> tuple[_Need, ...]:
    return _HOST_NEEDS + _MARKING_NEEDS if marks_workers else _HOST_NEEDS


def grant_statements(
    role: str,
    *,
    host_schema: str,
    own_schema: str,
    marks_workers: bool = False,
    holds_game_days: bool = False,
) -> list[str]:
    """For an administrator to run, before or after our tables exist."""
    grantee, host, own = quoted(role), quoted(host_schema), quoted(own_schema)
    needs = _host_needs(marks_workers=marks_workers)
    return [
        f"GRANT USAGE ON SCHEMA {host} TO {grantee};",
        *_host_grants(needs, grantee, host),
        *(game_day_grants(role, host_schema=host_schema) if holds_game_days else ()),
        f"CREATE SCHEMA IF NOT EXISTS {own} AUTHORIZATION {grantee};",
        # When somebody else made it, or migrated it.
        f"GRANT USAGE, CREATE ON SCHEMA {own} TO {grantee};",
        f"GRANT {', '.join(_OWN_PRIVILEGES)} ON ALL TABLES IN SCHEMA {own} TO {grantee};",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {own} TO {grantee};",
    ]


def game_day_grants(role: str, *, host_schema: str) -> list[str]:
    """What a game day needs beyond what the sidecar does."""
    return _host_grants([_GAME_DAY_NEED], quoted(role), quoted(host_schema))


def _host_grants(needs: Sequence[_Need], grantee: str, host: str) -> list[str]:
    inserted = [need.table for need in needs if need.privilege == "INSERT"]
    return [
        *(f"GRANT {_right(need)} ON {host}.{quoted(need.table)} TO {grantee};" for need in needs),
        *(f"GRANT USAGE ON SEQUENCE {host}.{quoted(f'{table}_id_seq')} TO {grantee};" for table in inserted),
    ]


def _right(need: _Need) -> str:
    columns = f" ({', '.join(quoted(column) for column in need.columns)})" if need.columns else ""
    return need.privilege + columns


async def missing_grants(
    database: Database, *, marks_workers: bool = False, has_own: bool = True
) -> list[str]:
    """What our role may not do and has to, in words; empty when all is well.

    `has_own`: whether our own tables are there to be looked at.
    """
    async with database.transaction() as tx:
        missing = []
        host_needs = _host_needs(marks_workers=marks_workers)
        own_needs = _OWN_NEEDS if has_own else ()
        for schema, needs in ((database.host_schema, host_needs), (database.own_schema, own_needs)):
            missing += await _missing_on_schema(tx, schema)
            missing += await _missing_on_tables(tx, schema, needs)
            missing += await _missing_on_sequences(tx, schema, needs)
    return missing


async def grants_for_us(database: Database, *, marks_workers: bool = False) -> list[str]:
    """What an administrator has to run for the role that we are connected as."""
    async with database.transaction() as tx:
        rows = await tx.rows("SELECT current_user AS role")
    return grant_statements(
        rows[0].role,
        host_schema=database.host_schema,
        own_schema=database.own_schema,
        marks_workers=marks_workers,
    )


async def missing_game_day_grants(database: Database) -> list[str]:
    """The statements that an administrator has to run first; empty when a game day may be held."""
    async with database.transaction() as tx:
        missing = await _missing_on_tables(tx, database.host_schema, [_GAME_DAY_NEED])
        missing += await _missing_on_sequences(tx, database.host_schema, [_GAME_DAY_NEED])
        [row] = await tx.rows("SELECT current_user AS role")
    return game_day_grants(row.role, host_schema=database.host_schema) if missing else []


async def _missing_on_schema(tx: Transaction, schema: str) -> list[str]:
    rows = await tx.rows(
        "SELECT 1 FROM pg_namespace WHERE nspname = :schema AND NOT has_schema_privilege(oid, 'USAGE')",
        schema=schema,
    )
    return [f"USAGE on schema {schema}" for _ in rows]


async def _missing_on_tables(tx: Transaction, schema: str, needs: Sequence[_Need]) -> list[str]:
    rows = await tx.rows(
        """
        SELECT t.relname AS table, a.attname AS column, privilege,
               CASE WHEN a.attname IS NULL THEN has_table_privilege(t.oid, privilege)
                    ELSE has_column_privilege(t.oid, a.attnum, privilege) END AS is_granted
          FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace AND n.nspname = :schema
          JOIN unnest(CAST(:tables AS text[]), CAST(:privileges AS text[]), CAST(:columns AS text[]))
               AS need("table", privilege, "column") ON need."table" = t.relname
          LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attname = need."column"
         WHERE t.relkind IN ('r', 'p', 'v', 'f')
        """,
        schema=schema,
        tables=[need.table for need in needs for _ in need.columns or (None,)],
        privileges=[need.privilege for need in needs for _ in need.columns or (None,)],
        columns=[column for need in needs for column in need.columns or (None,)],
    )
    granted = {(row.table, row.privilege, row.column): row.is_granted for row in rows}
    present = {row.table for row in rows}
    missing = []
    for need in needs:
        name = f"{schema}.{need.table}"
        if need.table not in present:
            if need.is_everywhere:
                missing.append(f"{need.privilege} on {name} (there is no such table)")
            continue
        missing += [
            f"{need.privilege}{f' ({column})' if column else ''} on {name}"
            for column in need.columns or (None,)
            if not granted.get((need.table, need.privilege, column), False)
        ]
    return missing


async def _missing_on_sequences(tx: Transaction, schema: str, needs: Sequence[_Need]) -> list[str]:
    """The sequences of the tables that we insert into, whatever they are called."""
    # The inner relkind is no repetition: nothing says that the filter runs before the function, which refuses
    # anything but a sequence.
    rows = await tx.rows(
        """
        SELECT s.relname AS name
          FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace AND n.nspname = :schema
          JOIN pg_depend d ON d.refobjid = t.oid AND d.deptype IN ('a', 'i')
          JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
         WHERE t.relname = ANY (CAST(:tables AS text[]))
           AND CASE WHEN s.relkind = 'S' THEN NOT has_sequence_privilege(s.oid, 'USAGE') ELSE false END
         ORDER BY s.relname
        """,
        schema=schema,
        tables=[need.table for need in needs if need.privilege == "INSERT"],
    )
    return [f"USAGE on sequence {schema}.{row.name}" for row in rows]
