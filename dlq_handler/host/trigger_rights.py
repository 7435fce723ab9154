"""Which tables the body of a trigger function touches, and which functions it calls. Pure.

The host's triggers run with the rights of the role that changes a row, so that role needs their rights too. PostgreSQL
records no dependency of a function body on tables: the body itself is read, by its words. A name may be no table at all
(`IS DISTINCT FROM old.status`), so the caller compares the names with the catalog. SQL that is put together at run time
(`EXECUTE format(...)`) is seen only where it names its table.
"""

import re
from dataclasses import dataclass

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
