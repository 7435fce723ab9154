"""The rights that dlq-handler's database role needs, and the GRANT statements for them. Pure.

Triggers of the host run with the rights of the role that changes a row, so that role needs their rights too. PostgreSQL
records no dependency of a function body on tables: the body itself is read, by its words. A name may be no table at all
(`IS DISTINCT FROM old.status`), so the caller compares the names with the catalog. SQL that is put together at run time
(`EXECUTE format(...)`) is found only where it names its table.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from dlq_handler.database.postgres_values import quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A right on one table. With `columns` it is needed on these alone."""

    schema: str
    table: str
    privilege: str
    columns: tuple[str, ...] = ()
    is_required: bool = False
    """False: a host without this table needs no right on it."""

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True, order=True)
class SequenceName:
    schema: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What the role needs in one database. Each of `needs` and `sequences` exists there."""

    needs: tuple[Need, ...]
    sequences: tuple[SequenceName, ...]
    absent: tuple[Need, ...] = ()
    """Needed on tables or columns that are missing there, although dlq-handler cannot work without them."""


_HOST_TABLES_READ = (
    "action",
    # Read by a trigger of the host on `execution`.
    "enforcement",
    "execution_admission_entry",
    # For `executions explain` and the page of an execution: Attune's own steps.
    "execution_history",
    # The parent of a workflow must not be requested again.
    "workflow_execution",
)
# Written by the host's triggers on `execution`. The needs of other triggers are read from the database (grants_sql.py).
_HOST_TABLES_WRITTEN = ("execution_history", "audit_event")
_OWN_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE")
# The sequences behind columns of Attune's tables. Its history tables have none.
_ATTUNE_SEQUENCES = {"audit_event": "audit_event_id_seq"}


def host_needs(schema: str) -> tuple[Need, ...]:
    changed = Need(
        schema=schema, table="execution", privilege="UPDATE", columns=("status", "result"), is_required=True
    )
    return (
        Need(schema=schema, table="execution", privilege="SELECT", is_required=True),
        changed,
        Need(schema=schema, table="worker", privilege="SELECT", is_required=True),
        *(Need(schema=schema, table=table, privilege="SELECT") for table in _HOST_TABLES_READ),
        *(Need(schema=schema, table=table, privilege="INSERT") for table in _HOST_TABLES_WRITTEN),
    )


class Feature(StrEnum):
    """What is off by default and needs more rights than the rest."""

    LIFECYCLE = "lifecycle"
    """Flows, and the queues of workers."""
    ORPHANS = "orphans"
    """Only the queues of workers that are gone."""


def feature_needs(schema: str) -> tuple[Need, ...]:
    """The same for each feature: a worker is locked and cordoned while its queues are retired."""
    return (
        Need(schema=schema, table="worker", privilege="UPDATE", columns=CORDON_COLUMNS),
        # Written by a trigger of Attune on `worker`.
        Need(schema=schema, table="worker_history", privilege="INSERT"),
    )


CORDON_COLUMNS = ("cordoned", "cordon_reason", "cordoned_at")


def own_needs(schema: str, tables: Iterable[str]) -> tuple[Need, ...]:
    return tuple(
        Need(schema=schema, table=table, privilege=privilege)
        for table in tables
        for privilege in (("SELECT",) if table in ("alembic_version", "compatibility") else _OWN_PRIVILEGES)
    )


def attune_rights(schema: str, features: Collection[Feature] = ()) -> Rights:
    """For Attune's schema as it is known, without a database."""
    needs = (*host_needs(schema), *(feature_needs(schema) if features else ()))
    inserted = dict.fromkeys(need.table for need in needs if need.privilege == "INSERT")
    return Rights(
        needs=needs,
        sequences=tuple(
            SequenceName(schema, _ATTUNE_SEQUENCES[table]) for table in inserted if table in _ATTUNE_SEQUENCES
        ),
    )


def host_grants(role: str, rights: Rights) -> list[str]:
    grantee = quoted(role)
    schemas = dict.fromkeys(need.schema for need in rights.needs)
    return [
        *(f"GRANT USAGE ON SCHEMA {quoted(schema)} TO {grantee};" for schema in schemas),
        *(
            f"GRANT {_privilege(need)} ON {quoted(need.schema)}.{quoted(need.table)} TO {grantee};"
            for need in rights.needs
        ),
        *(
            f"GRANT USAGE ON SEQUENCE {quoted(sequence.schema)}.{quoted(sequence.name)} TO {grantee};"
            for sequence in rights.sequences
        ),
    ]


def own_grants(role: str, schema: str) -> list[str]:
    """Sufficient before and after the tables of dlq-handler exist, whichever role created them."""
    grantee, own = quoted(role), quoted(schema)
    return [
        f"CREATE SCHEMA IF NOT EXISTS {own} AUTHORIZATION {grantee};",
        f"GRANT USAGE, CREATE ON SCHEMA {own} TO {grantee};",
        f"GRANT {', '.join(_OWN_PRIVILEGES)} ON ALL TABLES IN SCHEMA {own} TO {grantee};",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {own} TO {grantee};",
    ]


def _privilege(need: Need) -> str:
    columns = f" ({', '.join(quoted(column) for column in need.columns)})" if need.columns else ""
    return need.privilege + columns


_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME = r'(?:"[^"]+"|[a-z_][a-z0-9_$]*)'
_TABLE = rf"(?:(?P<schema>{_NAME})\s*\.\s*)?(?P<table>{_NAME})"
_USE = re.compile(
    rf"\b(?P<verb>insert\s+into|delete\s+from|update(?!\s+set\b)|from|join)\s+(?:only\s+)?{_TABLE}",
    re.IGNORECASE,
)
_CALL = re.compile(rf"({_NAME})\s*\(", re.IGNORECASE)
_CONFLICT = re.compile(r"\bon\s+conflict\b(?P<update>.*\bdo\s+update\b)?", re.IGNORECASE | re.DOTALL)
_RETURNING = re.compile(r"\breturning\b", re.IGNORECASE)

_PRIVILEGES = {
    "insert into": ("INSERT",),
    # Both read the rows that they change: by a condition, or by an expression.
    "update": ("UPDATE", "SELECT"),
    "delete from": ("DELETE", "SELECT"),
    "from": ("SELECT",),
    "join": ("SELECT",),
}


@dataclass(frozen=True, slots=True, order=True)
class TableRight:
    """A right on a name that may be a table. `schema` is None for a name that the search_path resolves."""

    schema: str | None
    table: str
    privilege: str


def rights_used(body: str) -> frozenset[TableRight]:
    return frozenset(
        right for statement in _COMMENT.sub(" ", body).split(";") for right in _rights_of(statement)
    )


def functions_called(body: str) -> frozenset[str]:
    return frozenset(_folded(name) for name in _CALL.findall(_COMMENT.sub(" ", body)))


def _rights_of(statement: str) -> set[TableRight]:
    found = set()
    for use in _USE.finditer(statement):
        verb = " ".join(use["verb"].lower().split())
        privileges = set(_PRIVILEGES[verb])
        if verb == "insert into":
            privileges |= _of_insert(statement)
        schema = _folded(use["schema"]) if use["schema"] else None
        found |= {TableRight(schema, _folded(use["table"]), privilege) for privilege in privileges}
    return found


def _of_insert(statement: str) -> set[str]:
    """What an INSERT needs besides: it reads the rows that it meets, and those that it returns."""
    conflict = _CONFLICT.search(statement)
    more = {"SELECT"} if conflict or _RETURNING.search(statement) else set()
    return more | {"UPDATE"} if conflict and conflict["update"] else more


def _folded(name: str) -> str:
    """As PostgreSQL reads it: in lower case, unless it is quoted."""
    return name[1:-1] if name.startswith('"') else name.lower()
