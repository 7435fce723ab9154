"""The night with a real sidecar on real servers: two workers available, one not, and the hour before on record.

For the browser's tests and for the pictures in the docs. The sidecar reaches its database through a proxy, so that a
test can take it away.
"""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from dlq_handler.database import migrate
from dlq_handler.database.engine import Database
from sandbox.attune.completion_listener import CompletionListener
from sandbox.attune.executor import StockExecutor
from sandbox.attune.messages import StockMessage
from sandbox.attune.scheduler import Scheduler
from sandbox.attune.topology import dispatch_key
from sandbox.attune.worker import StockWorker
from sandbox.servers import RabbitMQ
from tests.support import night
from tests.support.night_seed import seed_night
from tests.support.sidecar import SidecarProcess, sidecar_process
from tests.support.tcp_proxy import TcpProxy

TOKENS = {"operate": "night-shift-operates-0123456789", "read": "night-shift-reads-0123456789"}

# Many heartbeats fit into `night.UNAVAILABLE_AFTER`, also on a busy machine.
HEARTBEAT_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class NightWorld:
    sidecar: SidecarProcess
    database_link: TcpProxy
    store: Database
    executor: StockExecutor
    now: datetime
    """To the minute; the night's hour ends with it."""

    @property
    def url(self) -> str:
        return self.sidecar.ui_url

    async def let_die(self, count: int) -> None:
        """So many messages come to a worker that cannot read them, and rejects them."""
        for _ in range(count):
            message_id = str(uuid4())
            await self.executor.publish(
                StockMessage(
                    exchange="attune.executions",
                    routing_key=dispatch_key(night.NODE),
                    message_id=message_id,
                    correlation_id=message_id,
                    body=b"no envelope",
                )
            )


@asynccontextmanager
async def night_world(
    folder: Path,
    broker: RabbitMQ,
    amqp_url: str,
    database_url: str,
    *,
    is_hostile: bool = False,
    has_tokens: bool = False,
    **settings: str,
) -> AsyncIterator[NightWorld]:
    """`has_tokens`: every request needs one of TOKENS. Keywords are settings of the sidecar."""
    async with AsyncExitStack() as ends:
        store = Database(database_url)
        ends.push_async_callback(store.dispose)
        await migrate.upgrade(store)
        now = await seed_night(store, is_hostile=is_hostile)
        executor = await _people(ends, amqp_url, database_url, store, is_hostile=is_hostile)
        link = await ends.enter_async_context(TcpProxy.to(database_url))
        environment = {
            "worker__unavailable_after_seconds": f"{night.UNAVAILABLE_AFTER.total_seconds():g}",
            "ui__environment": "production",
            "ui__refresh_seconds": "1",
            "ui__runbook_url": "https://docs.example/dlq-handler/runbook.md",
            "broker__management_url": broker.management_url.replace(
                "://", f"://{broker.user}:{broker.password}@"
            ),
            "canary__interval_seconds": "5",
            "canary__ttl_ms": "500",
            "ATTUNE__WORKER__HEARTBEAT_INTERVAL": "2",
            **({"ui__tokens": _token_files(folder)} if has_tokens else {}),
            **settings,
        }
        sidecar = await ends.enter_async_context(
            sidecar_process(folder, amqp_url, link.url, name="sidecar-1", start=False, **environment)
        )
        await sidecar.start()
        yield NightWorld(sidecar=sidecar, database_link=link, store=store, executor=executor, now=now)


async def _people(
    ends: AsyncExitStack, amqp_url: str, database_url: str, store: Database, *, is_hostile: bool
) -> StockExecutor:
    """The available workers, and the queue of the unavailable one."""
    executor = await ends.enter_async_context(StockExecutor(amqp_url, database_url))
    await ends.enter_async_context(CompletionListener(amqp_url, database_url))
    await ends.enter_async_context(Scheduler(amqp_url, database_url))
    names = [night.WORKERS[night.SHELL], night.WORKERS[night.NODE]]
    for name in [*names, *([night.HOSTILE_NAME] if is_hostile else [])]:
        worker = await ends.enter_async_context(
            StockWorker(amqp_url, database_url, name=name, heartbeat_seconds=HEARTBEAT_SECONDS)
        )
        await worker.consume()
    async with store.transaction() as tx:
        row = await tx.row("SELECT last_heartbeat FROM worker WHERE id = :id", id=night.PYTHON)
    assert row is not None
    async with StockWorker(amqp_url, database_url, name=night.WORKERS[night.PYTHON]):
        """It declares its queue, as it did before it went."""
    await executor.schedule_many(night.WAITING, night.PYTHON, action_ref="etl.load")
    async with store.transaction() as tx:
        await tx.run(
            "UPDATE worker SET last_heartbeat = :beat WHERE id = :id",
            beat=row.last_heartbeat,
            id=night.PYTHON,
        )
        for worker_id, host in night.HOSTS.items():
            await tx.run("UPDATE worker SET host = :host WHERE id = :id", host=host, id=worker_id)
    return executor


def _token_files(folder: Path) -> str:
    tokens = []
    for role, token in TOKENS.items():
        path = folder / f"token-{role}"
        path.write_text(token)
        tokens.append(
            {"name": {"operate": "ada", "read": "grace"}[role], "role": role, "token_file": str(path)}
        )
    return json.dumps(tokens)
