"""How the database answered: the plan of each question, and how many rows it read for it."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy import Row

from dlq_handler.database.transaction import Transaction


class Plans:
    """Of every SELECT that `Transaction.rows` is asked for while it is `noted`."""

    def __init__(self) -> None:
        self.noted: list[dict[str, Any]] = []

    def note(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plain = Transaction.rows

        async def rows(tx: Transaction, sql: str, **parameters: object) -> Sequence[Row[Any]]:
            if sql.lstrip().startswith("SELECT"):
                [explained] = await plain(tx, f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", **parameters)
                plans = explained[0] if isinstance(explained[0], list) else json.loads(explained[0])
                self.noted.append(plans[0]["Plan"])
            return await plain(tx, sql, **parameters)

        monkeypatch.setattr(Transaction, "rows", rows)

    def rows_read(self, table: str) -> list[int]:
        """By each question, whether they were wanted or passed over."""
        return [sum(_read(node) for node in _scans(plan, table)) for plan in self.noted]

    def __str__(self) -> str:
        return json.dumps(self.noted, indent=1)


def _scans(plan: dict[str, Any], table: str) -> Iterator[dict[str, Any]]:
    if plan.get("Relation Name") == table:
        yield plan
    for child in plan.get("Plans", ()):
        yield from _scans(child, table)


def _read(node: dict[str, Any]) -> int:
    passed_over = sum(value for name, value in node.items() if name.startswith("Rows Removed by"))
    return int((node["Actual Rows"] + passed_over) * node["Actual Loops"])
