"""Stock Attune for one test: an executor, an auditor, and the workers that the test makes unavailable."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from sandbox.attune.executor import Dispatch, StockExecutor
from sandbox.attune.worker import StockWorker
from tests.support.auditor import Auditor
from tests.support.eventually import eventually


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    amqp_url: str
    database_url: str
    folder: Path
    executor: StockExecutor
    auditor: Auditor

    async def vanished_worker(self, name: str = "gone", *, ttl_ms: int = 500) -> StockWorker:
        worker = StockWorker(self.amqp_url, self.database_url, name=name, ttl_ms=ttl_ms)
        await worker.start()
        await worker.vanish()
        return worker

    async def all_ended(self, dispatched: list[Dispatch], status: str = "failed") -> None:
        """Every execution has this status, and each was announced exactly once."""
        ids = [dispatch.execution_id for dispatch in dispatched]

        async def ended() -> bool:
            return all([await self.auditor.status(number) == status for number in ids])

        async def announced() -> bool:
            counts = await self.auditor.notice_counts()
            return all(counts[number] >= 1 for number in ids)

        await eventually(ended, timeout=60)
        await eventually(announced, timeout=60)
        counts = await self.auditor.notice_counts()
        assert {number: counts[number] for number in ids} == dict.fromkeys(ids, 1)

    async def outcomes(self) -> dict[str, int]:
        """How many letters are on record with which outcome."""
        rows = await self.sql("SELECT outcome, count(*) AS letters FROM dlq_handler.letter GROUP BY outcome")
        return {row["outcome"]: row["letters"] for row in rows}

    async def sql(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.database_url)
        try:
            await connection.execute("SET search_path TO attune, public")
            return list(await connection.fetch(statement, *arguments))
        finally:
            await connection.close()

    @asynccontextmanager
    async def locked(self, *tables: str) -> AsyncIterator[None]:
        """As a migration of the host locks them: nobody else can even read."""
        connection = await asyncpg.connect(self.database_url)
        try:
            await connection.execute("SET search_path TO attune, public")
            async with connection.transaction():
                await connection.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
                yield
        finally:
            await connection.close()


@asynccontextmanager
async def stock_world(amqp_url: str, database_url: str, folder: Path) -> AsyncIterator[World]:
    async with StockExecutor(amqp_url, database_url) as executor, Auditor(amqp_url, database_url) as auditor:
        yield World(
            amqp_url=amqp_url, database_url=database_url, folder=folder, executor=executor, auditor=auditor
        )
