"""Everything that dlq-handler knows of the host is in host/: statements on its tables, and its names on the broker."""

import ast
from pathlib import Path

from dlq_handler.host import names
from tests.support.host_sql import PACKAGE, tables_named_in

HOST = PACKAGE / "host"
OTHERS = sorted(path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(HOST))
NAMES = {
    name
    for constant, value in vars(names).items()
    if constant.isupper() and isinstance(value, str | tuple)
    for name in ([value] if isinstance(value, str) else value)
    if name != names.STOCK_BINDING_KEY
}


def constants_of(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_statements_on_tables_of_the_host_are_in_host() -> None:
    found = {str(path.relative_to(PACKAGE)): tables_named_in(path) for path in OTHERS}
    assert {path: tables for path, tables in found.items() if tables} == {}
    assert any(tables_named_in(path) for path in HOST.glob("*_sql.py")), "the search finds nothing at all"


def test_names_of_the_host_are_in_host() -> None:
    assert "execution.requested" in NAMES
    found = {str(path.relative_to(PACKAGE)): constants_of(path) & NAMES for path in OTHERS}
    assert {path: used for path, used in found.items() if used} == {}
