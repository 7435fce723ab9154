"""Find the rights that the host's triggers need when dlq-handler changes a row.

A trigger function runs with the rights of the role that changes the row, unless it is SECURITY DEFINER. What it writes
may have triggers too, and it may call other functions: all of them are followed. Reads the catalog only, which every
role may read.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.transaction import Transaction
from dlq_handler.host.rights import Need
from dlq_handler.host.trigger_rights import TableRight, functions_called, rights_used

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
