"""One open transaction, as the statements of this folder see it.

In their SQL `own.` stands for dlq-handler's schema, whatever it is called; the host's tables are named bare and found
by the search_path, as its triggers find them.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import CursorResult, Row, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.postgres_values import quoted


class Transaction:
    def __init__(self, connection: AsyncConnection, own_schema: str) -> None:
        self.connection = connection
        self.own_schema = own_schema
        self.answered_at = monotonic_seconds()
        """The process clock at the last answer of the database within this transaction."""

    async def run(self, sql: str, **parameters: object) -> CursorResult[Any]:
        result = await self.connection.execute(_statement(sql, self.own_schema), parameters)
        self.answered_at = monotonic_seconds()
        return result

    async def rows(self, sql: str, **parameters: object) -> Sequence[Row[Any]]:
        return (await self.run(sql, **parameters)).all()

    async def row(self, sql: str, **parameters: object) -> Row[Any] | None:
        return (await self.run(sql, **parameters)).first()


@lru_cache(maxsize=256)
def _statement(sql: str, own_schema: str) -> TextClause:
    return text(in_own_schema(sql, own_schema))


def in_own_schema(sql: str, own_schema: str) -> str:
    return re.sub(r"\bown\.", lambda _: f"{quoted(own_schema)}.", sql)
