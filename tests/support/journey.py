"""Stock Attune for one test: an executor, an auditor, and the workers that the test makes unavailable."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import aio_pika
import asyncpg

from sandbox.attune.executor import Dispatch, StockExecutor
from sandbox.attune.worker import StockWorker
from sandbox.servers import RabbitMQ
from tests.support.auditor import Auditor
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess, sidecar_process


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    amqp_url: str
    database_url: str
    folder: Path
    executor: StockExecutor
    auditor: Auditor

    def sidecar(
        self, name: str = "sidecar-1", *, start: bool = True, **settings: str
    ) -> AbstractAsyncContextManager[SidecarProcess]:
        return sidecar_process(
            self.folder, self.amqp_url, self.database_url, name=name, start=start, **settings
        )

    async def vanished_worker(self, name: str = "gone", *, ttl_ms: int = 500) -> StockWorker:
        worker = StockWorker(self.amqp_url, self.database_url, name=name, ttl_ms=ttl_ms)
        await worker.start()
        await worker.vanish()
        return worker

    async def all_ended(self, dispatched: list[Dispatch], status: str = "failed") -> None:
        """Every execution has this status and exactly one completion event."""
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
        """Number of dead letters on record by outcome."""
        rows = await self.sql("SELECT outcome, count(*) AS letters FROM dlq_handler.letter GROUP BY outcome")
        return {row["outcome"]: row["letters"] for row in rows}

    async def until_outcomes(self, **wanted: int) -> None:
        async def recorded() -> bool:
            assert await self.outcomes() == wanted
            return True

        await eventually(recorded, timeout=60)

    async def sql(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.database_url)
        try:
            await connection.execute("SET search_path TO attune, public")
            return list(await connection.fetch(statement, *arguments))
        finally:
            await connection.close()

    async def now(self) -> datetime:
        [row] = await self.sql("SELECT clock_timestamp() AS now")
        moment: datetime = row["now"]
        return moment

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
        connection = await aio_pika.connect(self.amqp_url)
        async with connection:
            yield await connection.channel(on_return_raises=True)

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        headers: Mapping[str, Any] | None = None,
        **more: str,
    ) -> None:
        async with self.channel() as channel:
            message = aio_pika.Message(body, headers=dict(headers or {}), **more)  # type: ignore[arg-type]  # any property
            await (await channel.get_exchange(exchange, ensure=False)).publish(message, routing_key)

    @asynccontextmanager
    async def locked(self, *tables: str) -> AsyncIterator[None]:
        """As a migration of the host locks them: no other session can even read."""
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


def management_url(rabbitmq: RabbitMQ) -> str:
    """With the credentials of the server's own user."""
    return rabbitmq.management_url.replace("://", f"://{rabbitmq.user}:{rabbitmq.password}@")
