"""One test's Attune: its servers, an auditor that watches them, and the replicas that the test starts beside them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import aio_pika
import asyncpg

from sandbox.attune.executor import Dispatch
from sandbox.servers import RabbitMQ
from tests.support.auditor import Auditor
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess, sidecar_process


@dataclass(frozen=True, kw_only=True)
class World:
    amqp_url: str
    database_url: str
    folder: Path
    auditor: Auditor
    settings: ClassVar[Mapping[str, str]] = {}
    """Of every replica."""

    @property
    def vhost_name(self) -> str:
        return unquote(urlsplit(self.amqp_url).path.removeprefix("/"))

    @asynccontextmanager
    async def sidecar(
        self,
        name: str = "sidecar-1",
        *,
        vhost: str | None = None,
        database: str | None = None,
        start: bool = True,
        **settings: str,
    ) -> AsyncIterator[SidecarProcess]:
        """A replica. `vhost` and `database` are URLs of proxies to the servers."""
        async with sidecar_process(
            self.folder,
            vhost or self.amqp_url,
            database or self.database_url,
            name=name,
            start=start,
            **{**self.settings, **settings},
        ) as process:
            try:
                yield process
            except BaseException:
                # pytest shows it with the failure.
                print(f"--- the end of {name}'s log\n{process.log_text()[-8000:]}")
                raise

    async def all_ended(self, dispatched: list[Dispatch], status: str = "failed") -> None:
        """Every execution has this status and exactly one completion event."""
        ids = [dispatch.execution_id for dispatch in dispatched]

        async def ended() -> bool:
            return all([await self.auditor.status(number) == status for number in ids])

        async def published() -> bool:
            counts = await self.auditor.completion_counts()
            return all(counts[number] >= 1 for number in ids)

        await eventually(ended, timeout=60)
        await eventually(published, timeout=60)
        counts = await self.auditor.completion_counts()
        assert {number: counts[number] for number in ids} == dict.fromkeys(ids, 1)

    async def outcomes(self) -> dict[str, int]:
        """Number of dead letters on record by outcome."""
        return dict(await self.sql("SELECT outcome, count(*) FROM dlq_handler.letter GROUP BY outcome"))

    async def until_outcomes(self, **wanted: int) -> None:
        async def recorded() -> bool:
            assert await self.outcomes() == wanted
            return True

        await eventually(recorded, timeout=60)

    async def sql(self, statement: str, *arguments: object) -> list[Any]:
        """Rows, which are also tuples; in Attune's schema."""
        return list(await self.auditor.database.session.fetch(statement, *arguments))

    async def now(self) -> datetime:
        [(moment,)] = await self.sql("SELECT clock_timestamp()")
        return moment  # type: ignore[no-any-return]  # a timestamp with time zone

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
        connection = await aio_pika.connect(self.amqp_url)
        async with connection:
            yield await connection.channel(on_return_raises=True)

    async def publish(self, exchange: str, routing_key: str, body: bytes, *, message_id: str) -> None:
        async with self.channel() as channel:
            message = aio_pika.Message(body, message_id=message_id)
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


def management_url(rabbitmq: RabbitMQ) -> str:
    """With the credentials of the server's own user."""
    return rabbitmq.management_url.replace("://", f"://{rabbitmq.user}:{rabbitmq.password}@")
