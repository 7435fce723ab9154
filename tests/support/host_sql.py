"""The names of the host that the SQL of dlq-handler uses, read from the source text.

Promises: every string of every module counts, f-strings with the constants of their module put in. A name is checked
against the reference schema: a table or column that it does not have raises.
"""

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dlq_handler"

_WORD = r"[a-z_][a-z0-9_]*"
_SOURCE = re.compile(
    r"(?<!DISTINCT )(?<!KEY )(?<!DO )(?<!epoch )\b(?:FROM|JOIN|UPDATE|INSERT INTO)\s+(?:ONLY\s+)?"
    rf"({_WORD})(?![a-z0-9_]*[.(])(?:\s+(?:AS\s+)?({_WORD})\b)?"
)
_CTE = re.compile(rf"\b({_WORD})(?:\s*\([a-z_, ]+\))? AS (?:MATERIALIZED )?\(")
_OWN_ALIAS = re.compile(rf"\bown\.{_WORD}\s+(?:AS\s+)?({_WORD})\b")
_QUALIFIED = re.compile(rf"\b({_WORD})\.({_WORD})\b(?!\.)")
_BARE = re.compile(rf"(?<![.:'\w])(?<!AS )({_WORD})\b(?!\s*[.(])")
_LITERAL = re.compile(r"'[^']*'")
_JSON_FIELD = re.compile(rf"(?:({_WORD})\.)?({_WORD}|to_jsonb\({_WORD}\)) ->>? '({_WORD})'")
_LOOKED_UP = re.compile(rf"to_regclass\('({_WORD})'\)")


@dataclass
class HostNames:
    tables: set[str] = field(default_factory=set)
    columns: set[str] = field(default_factory=set)
    """As `table.column`."""
    json_fields: set[str] = field(default_factory=set)
    """As `table.column.field`."""


@cache
def reference_schema() -> Mapping[str, frozenset[str]]:
    """The columns of each table of the reference Attune."""
    columns: dict[str, set[str]] = {}
    for name in reference_types():
        table, _, column = name.partition(".")
        columns.setdefault(table, set()).add(column)
    return {table: frozenset(found) for table, found in columns.items()}


@cache
def reference_types() -> Mapping[str, str]:
    """The type of each column of the reference Attune, by `table.column`."""
    text = (ROOT / "sandbox/attune/schema.sql").read_text()
    return {
        f"{table}.{column}": kind.replace("bigserial", "bigint")
        for table, body in re.findall(rf"^CREATE TABLE ({_WORD}) \((.*?)^\);", text, re.MULTILINE | re.DOTALL)
        for column, kind in re.findall(rf"^    ({_WORD}) +([a-z_]+(?:\[\])?)", body, re.MULTILINE)
    }


@cache
def host_names() -> HostNames:
    names = HostNames()
    texts = [text for path in sorted((PACKAGE / "host").glob("*.py")) for text in strings_of(path)]
    aliases = _shared_aliases(texts)
    for text in texts:
        _collect(text, aliases, names)
    return names


def strings_of(path: Path) -> Iterator[str]:
    if "migrations" in path.parts or path.name == "__main__.py":
        return
    tree = ast.parse(path.read_text())
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(_rendered(part, path) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def _rendered(part: ast.expr, path: Path) -> str:
    """What is only known while the program runs is left out."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    called = {
        node.func.id
        for node in ast.walk(part)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    is_pure = all(
        isinstance(node, ast.Name | ast.Constant | ast.Call | ast.Load) for node in ast.walk(part.value)
    )
    if not path.name.endswith("_sql.py") or not is_pure or called - {"readable", "age_seconds"}:
        return ""
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    try:
        value = eval(compile(ast.Expression(part.value), str(path), "eval"), vars(module))
    except NameError:
        return ""
    return value if isinstance(value, str) else ""


def _sources(text: str) -> Iterator[tuple[str, str]]:
    """Each host table of a statement, with the name that its columns are read by."""
    schema = reference_schema()
    for table, alias in _SOURCE.findall(text):
        if table in schema:
            yield table, alias or table


def _unknown_tables(text: str) -> list[str]:
    """Neither of the host, nor of PostgreSQL, nor made by the statement itself."""
    if not re.search(r"\b(?:SELECT|WHERE|RETURNING)\b", text):
        return []
    made = {*reference_schema(), *_CTE.findall(text)}
    return [table for table, _ in _SOURCE.findall(text) if table not in made and not table.startswith("pg_")]


def _shared_aliases(texts: list[str]) -> dict[str, str]:
    """For parts of statements, which name no table themselves: an alias that means the same table everywhere."""
    tables: dict[str, set[str]] = {}
    for text in texts:
        for table, alias in _sources(text):
            tables.setdefault(alias, set()).add(table)
    own = {alias for text in texts for alias in _OWN_ALIAS.findall(text)}
    return {
        alias: next(iter(found)) for alias, found in tables.items() if len(found) == 1 and alias not in own
    }


def _collect(text: str, shared: Mapping[str, str], names: HostNames) -> None:
    schema = reference_schema()
    sources = list(_sources(text))
    names.tables |= {table for table, _ in sources}
    if unknown := _unknown_tables(text):
        raise AssertionError(f"the reference Attune has no table {', '.join(unknown)}: {text}")
    names.tables |= set(_LOOKED_UP.findall(text))
    is_part = not sources and re.search(r"\b(?:CAST|CASE|SELECT|AND|coalesce)\b", text)
    if not sources and not is_part:
        return
    by_alias = {**shared, **{alias: table for table, alias in sources}}
    computed = set(re.findall(rf"\bAS ({_WORD})", text))
    without_literals = _LITERAL.sub("''", text)
    for alias, column in _QUALIFIED.findall(without_literals):
        table = by_alias.get(alias)
        if table is not None and column in schema[table]:
            names.columns.add(f"{table}.{column}")
        elif table is not None and column not in computed:
            raise AssertionError(f"{table} of the reference Attune has no column {column}: {text}")
    for start in (found.start() for found in _SOURCE.finditer(without_literals)):
        scope = _scope(without_literals, start)
        for table, _ in _sources(scope):
            bare = set(_BARE.findall(_SOURCE.sub(" ", scope)))
            names.columns |= {f"{table}.{column}" for column in bare & schema[table]}
    for alias, column, name in _JSON_FIELD.findall(text):
        if column.startswith("to_jsonb("):
            names.columns.add(f"{by_alias[column[9:-1]]}.{name}")
            continue
        owners = [by_alias[alias]] if alias in by_alias else [] if alias else [table for table, _ in sources]
        names.json_fields |= {f"{table}.{column}.{name}" for table in owners if column in schema[table]}


def _scope(text: str, position: int) -> str:
    """The SELECT around this position, without those inside or around it."""
    start = position
    depth = 0
    while start > 0 and depth >= 0:
        start -= 1
        depth += {")": 1, "(": -1}.get(text[start], 0)
    start += depth < 0
    end, depth = position, 0
    while end < len(text) and depth >= 0:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    scope = text[start : end - (depth < 0)]
    while (inner := re.sub(r"\((?:SELECT|VALUES)\b[^()]*\)", " ", scope)) != scope:
        scope = inner
    return scope


def tables_named_in(path: Path) -> set[str]:
    """The tables of the host that the SQL in this module names."""
    return {
        table
        for text in strings_of(path)
        for table, _ in _SOURCE.findall(_LITERAL.sub("''", text))
        if table in reference_schema() and table not in _CTE.findall(text)
    } | {
        table
        for text in strings_of(path)
        for table in _LOOKED_UP.findall(text)
        if table in reference_schema()
    }
