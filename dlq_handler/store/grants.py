"""The least rights of our database role: printed as GRANTs, and looked for.

One list serves both, so that whoever runs what is printed is never told that something is missing.
"""

from dataclasses import dataclass

from dlq_handler.store.engine import Database
from dlq_handler.store.transaction import quoted


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
    _Need(table="audit_event", privilege="INSERT"),
)
_OWN_TABLES = ("letter", "outbox", "alembic_version")
_OWN_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE")


def grant_statements(role: str, *, host_schema: str, own_schema: str) -> list[str]:
    """For an administrator to run, before or after our tables exist."""
    grantee, host, own = quoted(role), quoted(host_schema), quoted(own_schema)
    inserted = [need.table for need in _HOST_NEEDS if need.privilege == "INSERT"]
    return [
        f"GRANT USAGE ON SCHEMA {host} TO {grantee};",
        *(f"GRANT {_right(need)} ON {host}.{quoted(need.table)} TO {grantee};" for need in _HOST_NEEDS),
        *(f"GRANT USAGE ON SEQUENCE {host}.{quoted(f'{table}_id_seq')} TO {grantee};" for table in inserted),
        f"CREATE SCHEMA IF NOT EXISTS {own} AUTHORIZATION {grantee};",
        # When somebody else made it, or migrated it.
        f"GRANT USAGE, CREATE ON SCHEMA {own} TO {grantee};",
        f"GRANT {', '.join(_OWN_PRIVILEGES)} ON ALL TABLES IN SCHEMA {own} TO {grantee};",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {own} TO {grantee};",
    ]


def _right(need: _Need) -> str:
    columns = f" ({', '.join(quoted(column) for column in need.columns)})" if need.columns else ""
    return need.privilege + columns


async def missing_grants(database: Database) -> list[str]:
    """What our role may not do and has to, in words; empty when all is well."""
    wanted = [
        (database.host_schema, need.table, need.privilege, column, need.is_everywhere)
        for need in _HOST_NEEDS
        for column in need.columns or (None,)
    ]
    wanted += [
        (database.own_schema, table, privilege, None, True)
        for table in _OWN_TABLES[:2]
        for privilege in _OWN_PRIVILEGES
    ]
    wanted.append((database.own_schema, "alembic_version", "SELECT", None, True))
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            WITH wanted AS (
                SELECT * FROM unnest(CAST(:schemas AS text[]), CAST(:tables AS text[]),
                                     CAST(:privileges AS text[]), CAST(:columns AS text[]),
                                     CAST(:everywhere AS boolean[])) WITH ORDINALITY
                    AS need(schema, name, privilege, col, is_everywhere, place)),
            found AS (
                SELECT wanted.*, t.oid
                  FROM wanted LEFT JOIN pg_namespace n ON n.nspname = wanted.schema
                  LEFT JOIN pg_class t ON t.relnamespace = n.oid AND t.relname = wanted.name
                                      AND t.relkind IN ('r', 'p', 'v', 'f'))
            SELECT 1 AS part, place,
                   privilege || coalesce(' (' || col || ')', '') || ' on ' || schema || '.' || name
                   || CASE WHEN oid IS NULL THEN ' (there is no such table)' ELSE '' END AS what
              FROM found
             WHERE CASE WHEN oid IS NULL THEN is_everywhere
                        WHEN col IS NULL THEN NOT has_table_privilege(oid, privilege)
                        WHEN has_table_privilege(oid, privilege) THEN false
                        ELSE NOT EXISTS (SELECT FROM pg_attribute a
                                          WHERE a.attrelid = found.oid AND a.attname = col
                                            AND has_column_privilege(found.oid, a.attnum, privilege)) END
            UNION ALL
            SELECT 0, 0, 'USAGE on schema ' || n.nspname
              FROM pg_namespace n
             WHERE n.nspname IN (:host, :own) AND NOT has_schema_privilege(n.oid, 'USAGE')
            UNION ALL
            SELECT DISTINCT 2, 0, 'USAGE on sequence ' || found.schema || '.' || s.relname
              FROM found JOIN pg_depend d ON d.refobjid = found.oid AND d.deptype IN ('a', 'i')
              JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
             WHERE found.privilege = 'INSERT' AND NOT has_sequence_privilege(s.oid, 'USAGE')
             ORDER BY part, place, what
            """,
            host=database.host_schema,
            own=database.own_schema,
            schemas=[need[0] for need in wanted],
            tables=[need[1] for need in wanted],
            privileges=[need[2] for need in wanted],
            columns=[need[3] for need in wanted],
            everywhere=[need[4] for need in wanted],
        )
    return [row.what for row in rows]
