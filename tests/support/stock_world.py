"""A world with a stock executor, and workers that the test makes unavailable."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.attune.executor import StockExecutor
from sandbox.attune.worker import StockWorker
from tests.support.auditor import Auditor
from tests.support.world import World


@dataclass(frozen=True, kw_only=True)
class StockWorld(World):
    executor: StockExecutor

    async def lost_worker(self, name: str = "lost", *, ttl_ms: int = 500) -> StockWorker:
        worker = StockWorker(self.amqp_url, self.database_url, name=name, ttl_ms=ttl_ms)
        await worker.start()
        await worker.die()
        return worker


@asynccontextmanager
async def stock_world(amqp_url: str, database_url: str, folder: Path) -> AsyncIterator[StockWorld]:
    async with StockExecutor(amqp_url, database_url) as executor, Auditor(amqp_url, database_url) as auditor:
        yield StockWorld(
            amqp_url=amqp_url, database_url=database_url, folder=folder, executor=executor, auditor=auditor
        )
