"""The least rights of dlq-handler's database role, as this database needs them: printed as GRANTs, and checked.

One reading serves both, so that after the printed statements nothing is reported as missing. The needs of the host's
triggers are included: a trigger function runs with the rights of the role that changes the row, unless it is SECURITY
DEFINER. What it writes may have triggers too, and it may call other functions: all of them are followed. Only the
catalog is read, which every role may read.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.rights import (
    Feature,
    Need,
    Rights,
    SequenceName,
    TableRight,
    feature_needs,
    functions_called,
    host_grants,
    host_needs,
    own_grants,
    own_needs,
    rights_used,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDatabase:
    """What `dlq-handler grants` read: the rights for it, and what an administrator has to know besides."""

    rights: Rights
    has_role: bool
    other_owners: tuple[str, ...]
    """Other roles that own tables of dlq-handler; only an owner can migrate them."""


async def read_database(database: Database, role: str, features: Collection[Feature] = ()) -> FoundDatabase:
    """Any role that can connect may read all of it: it is in the catalog."""
    needs = _needs(database, features)
    async with database.transaction() as tx:
        rights = await _host_rights(tx, database.host_schema, needs)
        [known] = await tx.rows(
            "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = :role) AS has_role", role=role
        )
        owners = await tx.rows(
            """
            SELECT DISTINCT pg_get_userbyid(c.relowner) AS owner
              FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = :schema
             WHERE c.relkind = 'r' AND pg_get_userbyid(c.relowner) <> :role
             ORDER BY 1
            """,
            schema=database.own_schema,
            role=role,
        )
    return FoundDatabase(
        rights=rights, has_role=known.has_role, other_owners=tuple(row.owner for row in owners)
    )


def _needs(database: Database, features: Collection[Feature]) -> tuple[Need, ...]:
    schema = database.host_schema
    return (*host_needs(schema), *(feature_needs(schema) if features else ()))


async def grants_for_us(database: Database, features: Collection[Feature] = ()) -> list[str]:
    """The statements that an administrator must run for the current role."""
    async with database.transaction() as tx:
        [row] = await tx.rows("SELECT current_user AS role")
        rights = await _host_rights(tx, database.host_schema, _needs(database, features))
    return [*host_grants(row.role, rights), *own_grants(row.role, database.own_schema)]


async def missing_grants(
    database: Database, *, has_own: bool = True, features: Collection[Feature] = ()
) -> list[str]:
    """The rights that the role needs and lacks, in words; empty when none is missing.

    `has_own`: whether the tables of dlq-handler are current. Those that exist are checked.
    """
    needs = _needs(database, features)
    async with database.transaction() as tx:
        rights = await _host_rights(tx, database.host_schema, needs)
        schemas = {database.host_schema, database.own_schema, *(need.schema for need in rights.needs)}
        missing = [*await _missing_on_schemas(tx, schemas), *await _missing(tx, rights)]
        if has_own:
            missing += await _missing(tx, await _existing(tx, await _own_needs(tx, database.own_schema)))
    return missing


async def _host_rights(tx: Transaction, host_schema: str, needs: Sequence[Need]) -> Rights:
    """These needs, and those of the triggers that they fire, as far as the host has the tables."""
    plain = {(need.schema, need.table, need.privilege) for need in needs if not need.columns}
    fired = [
        need
        for need in await trigger_needs(tx, host_schema, needs)
        if (need.schema, need.table, need.privilege) not in plain
    ]
    return await _existing(tx, [*needs, *fired])


async def _own_needs(tx: Transaction, schema: str) -> tuple[Need, ...]:
    """From the catalog: a list of tables here would miss those that a later migration adds."""
    rows = await tx.rows(
        "SELECT tablename FROM pg_tables WHERE schemaname = :schema ORDER BY 1", schema=schema
    )
    return own_needs(schema, [row.tablename for row in rows])


async def _existing(tx: Transaction, needs: Sequence[Need]) -> Rights:
    columns = await _columns(tx, needs)
    there = [need for need in needs if _is_there(need, columns)]
    return Rights(
        needs=tuple(there),
        sequences=await _sequences(tx, [need for need in there if need.privilege == "INSERT"]),
        absent=tuple(need for need in needs if need.is_required and need not in there),
    )


def _is_there(need: Need, columns: Mapping[tuple[str, str], Collection[str]]) -> bool:
    found = columns.get((need.schema, need.table))
    return found is not None and set(need.columns) <= set(found)


async def _columns(tx: Transaction, needs: Iterable[Need]) -> dict[tuple[str, str], list[str]]:
    """Of the tables that exist."""
    tables = sorted({(need.schema, need.table) for need in needs})
    rows = await tx.rows(
        """
        SELECT n.nspname AS schema, t.relname AS "table",
               ARRAY(SELECT CAST(a.attname AS text) FROM pg_attribute a
                      WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns
          FROM unnest(CAST(:schemas AS text[]), CAST(:tables AS text[])) AS need(schema, "table")
          JOIN pg_namespace n ON n.nspname = need.schema
          JOIN pg_class t ON t.relnamespace = n.oid AND t.relname = need."table"
         WHERE t.relkind IN ('r', 'p', 'v', 'm', 'f')
        """,
        schemas=[schema for schema, _ in tables],
        tables=[table for _, table in tables],
    )
    return {(row.schema, row.table): row.columns for row in rows}


async def _sequences(tx: Transaction, inserts: Sequence[Need]) -> tuple[SequenceName, ...]:
    """Those that an INSERT draws from: of column defaults. An identity column's sequence needs no right."""
    rows = await tx.rows(
        """
        SELECT DISTINCT sn.nspname AS schema, s.relname AS name
          FROM unnest(CAST(:schemas AS text[]), CAST(:tables AS text[])) AS need(schema, "table")
          JOIN pg_namespace n ON n.nspname = need.schema
          JOIN pg_class t ON t.relnamespace = n.oid AND t.relname = need."table"
          JOIN pg_attrdef f ON f.adrelid = t.oid
          JOIN pg_depend d ON d.classid = CAST('pg_attrdef' AS regclass) AND d.objid = f.oid
           AND d.refclassid = CAST('pg_class' AS regclass)
          JOIN pg_class s ON s.oid = d.refobjid AND s.relkind = 'S'
          JOIN pg_namespace sn ON sn.oid = s.relnamespace
         ORDER BY 1, 2
        """,
        schemas=[need.schema for need in inserts],
        tables=[need.table for need in inserts],
    )
    return tuple(SequenceName(row.schema, row.name) for row in rows)


async def _missing(tx: Transaction, rights: Rights) -> list[str]:
    return [
        *map(_absent_in_words, rights.absent),
        *(_in_words(need, column) for need, column in await _missing_on_tables(tx, rights.needs)),
        *(
            f"USAGE on sequence {one.schema}.{one.name}"
            for one in await _missing_on_sequences(tx, rights.sequences)
        ),
    ]


def _absent_in_words(need: Need) -> str:
    if not need.columns:
        return f"{need.privilege} on {need.name} (there is no such table)"
    return (
        f"{need.privilege} ({', '.join(need.columns)}) on {need.name} (the table or a column does not exist)"
    )


async def _missing_on_schemas(tx: Transaction, schemas: Collection[str]) -> list[str]:
    rows = await tx.rows(
        """
        SELECT nspname AS name FROM pg_namespace
         WHERE nspname = ANY (CAST(:schemas AS text[])) AND NOT has_schema_privilege(oid, 'USAGE')
         ORDER BY nspname
        """,
        schemas=sorted(schemas),
    )
    return [f"USAGE on schema {row.name}" for row in rows]


async def _missing_on_tables(tx: Transaction, needs: Sequence[Need]) -> list[tuple[Need, str | None]]:
    """Each with the column on which it is missing; None: on the table."""
    asked = [(need, column) for need in needs for column in need.columns or (None,)]
    rows = await tx.rows(
        """
        SELECT need.place
          FROM unnest(CAST(:schemas AS text[]), CAST(:tables AS text[]), CAST(:privileges AS text[]),
                      CAST(:columns AS text[])) WITH ORDINALITY AS need(schema, "table", privilege, "column", place)
          JOIN pg_namespace n ON n.nspname = need.schema
          JOIN pg_class t ON t.relnamespace = n.oid AND t.relname = need."table"
          LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attname = need."column"
         WHERE NOT CASE WHEN a.attname IS NULL THEN has_table_privilege(t.oid, need.privilege)
                        ELSE has_column_privilege(t.oid, a.attnum, need.privilege) END
         ORDER BY need.place
        """,
        schemas=[need.schema for need, _ in asked],
        tables=[need.table for need, _ in asked],
        privileges=[need.privilege for need, _ in asked],
        columns=[column for _, column in asked],
    )
    return [asked[row.place - 1] for row in rows]


def _in_words(need: Need, column: str | None) -> str:
    return f"{need.privilege}{f' ({column})' if column else ''} on {need.name}"


async def _missing_on_sequences(tx: Transaction, sequences: Sequence[SequenceName]) -> list[SequenceName]:
    # The inner relkind is needed: the filter may run after the function, which accepts only sequences.
    rows = await tx.rows(
        """
        SELECT n.nspname AS schema, s.relname AS name
          FROM unnest(CAST(:schemas AS text[]), CAST(:names AS text[])) AS need(schema, name)
          JOIN pg_namespace n ON n.nspname = need.schema
          JOIN pg_class s ON s.relnamespace = n.oid AND s.relname = need.name
         WHERE CASE WHEN s.relkind = 'S' THEN NOT has_sequence_privilege(s.oid, 'USAGE') ELSE false END
         ORDER BY 1, 2
        """,
        schemas=[one.schema for one in sequences],
        names=[one.name for one in sequences],
    )
    return [SequenceName(row.schema, row.name) for row in rows]


# Bits of pg_trigger.tgtype.
_EVENTS = {"INSERT": 4, "DELETE": 8, "UPDATE": 16}


async def trigger_needs(tx: Transaction, host_schema: str, changes: Iterable[Need]) -> tuple[Need, ...]:
    """`changes`: the rights by which dlq-handler itself changes rows, and so fires triggers."""
    found: dict[Need, None] = {}
    fired: set[tuple[str, str, str]] = set()
    known: set[int] = set()
    firing = _firing(changes)
    while firing := firing - fired:
        fired |= firing
        rows = await _trigger_functions(tx, firing)
        bodies = await _with_called(tx, host_schema, rows, known)
        needs = await _on_relations(
            tx, host_schema, {right for body in bodies for right in rights_used(body)}
        )
        found |= dict.fromkeys(needs)
        firing = _firing(needs)
    return tuple(found)


def _firing(needs: Iterable[Need]) -> set[tuple[str, str, str]]:
    return {(need.schema, need.table, need.privilege) for need in needs if need.privilege in _EVENTS}


async def _trigger_functions(tx: Transaction, firing: Collection[tuple[str, str, str]]) -> Sequence[Row[Any]]:
    return await tx.rows(
        """
        SELECT DISTINCT p.oid AS id, p.prosrc AS body
          FROM unnest(CAST(:schemas AS text[]), CAST(:tables AS text[]), CAST(:events AS int[]))
               AS change(schema, "table", event)
          JOIN pg_namespace n ON n.nspname = change.schema
          JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = change."table"
          JOIN pg_trigger t ON t.tgrelid = c.oid AND t.tgtype & change.event <> 0
          JOIN pg_proc p ON p.oid = t.tgfoid
          JOIN pg_language l ON l.oid = p.prolang
         WHERE NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')
           AND NOT p.prosecdef AND l.lanname IN ('plpgsql', 'sql')
        """,
        schemas=[schema for schema, _, _ in firing],
        tables=[table for _, table, _ in firing],
        events=[_EVENTS[event] for _, _, event in firing],
    )


async def _with_called(
    tx: Transaction, host_schema: str, rows: Sequence[Row[Any]], known: set[int]
) -> list[str]:
    """The bodies of these functions and of those that they call, each function once."""
    bodies: list[str] = []
    while new := [row for row in rows if row.id not in known]:
        known.update(row.id for row in new)
        bodies += [row.body for row in new]
        rows = await tx.rows(
            """
            SELECT p.oid AS id, p.prosrc AS body
              FROM pg_proc p
              JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspname IN (:schema, 'public')
              JOIN pg_language l ON l.oid = p.prolang
             WHERE p.proname = ANY (CAST(:names AS text[])) AND NOT p.prosecdef AND l.lanname IN ('plpgsql', 'sql')
            """,
            schema=host_schema,
            names=sorted({name for row in new for name in functions_called(row.body)}),
        )
    return bodies


async def _on_relations(tx: Transaction, host_schema: str, rights: Collection[TableRight]) -> list[Need]:
    """Those on names that are tables or views; a bare name is found in the host's schema, then in public."""
    ordered = sorted(rights, key=lambda right: (right.schema or "", right.table, right.privilege))
    rows = await tx.rows(
        """
        SELECT DISTINCT ON (used.place) n.nspname AS schema, c.relname AS "table", used.privilege
          FROM unnest(CAST(:schemas AS text[]), CAST(:tables AS text[]), CAST(:privileges AS text[]))
               WITH ORDINALITY AS used(schema, "table", privilege, place)
          JOIN pg_class c ON c.relname = used."table" AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
          JOIN pg_namespace n ON n.oid = c.relnamespace
           AND (n.nspname = used.schema OR used.schema IS NULL AND n.nspname IN (:host, 'public'))
         ORDER BY used.place, n.nspname <> :host
        """,
        schemas=[right.schema for right in ordered],
        tables=[right.table for right in ordered],
        privileges=[right.privilege for right in ordered],
        host=host_schema,
    )
    return [Need(schema=row.schema, table=row.table, privilege=row.privilege) for row in rows]
