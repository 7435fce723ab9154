"""Workers that live and die on real servers, and those parts of the sidecar that care, ticked by hand."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.database import migrate
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.errors import Unavailable
from dlq_handler.host.worker import AvailabilityPolicy, WorkerQueueNames
from dlq_handler.rooms import new_metrics
from dlq_handler.workers.queue_observer import WorkerQueueObserver
from dlq_handler.workers.watch import WorkerWatch
from sandbox.attune.executor import Dispatch, StockExecutor
from sandbox.attune.worker import StockWorker
from tests.support.builders import read
from tests.support.deciding import letter_ender, letter_recorder
from tests.support.fail_safe import a_brake, a_gate

AVAILABILITY = AvailabilityPolicy(unavailable_after_seconds=90, late_after_seconds=30)
CONFIRM_AFTER_SECONDS = 30.0


class NoApi:
    async def queue_statistics(self, *_: object, **__: object) -> None:
        raise Unavailable("management API", "there is none in these tests")

    queue_arguments = queue_statistics


class Watchpost:
    """One replica, without its loops."""

    def __init__(self, amqp_url: str, database_url: str, *, holder: str = "one") -> None:
        self.clock = 0.0
        self.watched_seconds = 3600.0
        self.database = Database(database_url)
        self.metrics = new_metrics()
        self.address = BrokerAddress(urls=[amqp_url])
        self.admin = AdminConnection(self.address)
        self.queue_observer = WorkerQueueObserver(
            self.admin,
            api=cast("Any", NoApi()),
            names=WorkerQueueNames(),
            counts_kept_seconds=0.0,
        )
        self.watch = WorkerWatch(
            self.database,
            self.queue_observer,
            cast("Any", SimpleNamespace(is_leader=True)),
            cast("Any", self),
            availability=AVAILABILITY,
            confirm_after_seconds=CONFIRM_AFTER_SECONDS,
            metrics=self.metrics,
            now=lambda: self.clock,
        )
        self.leadership = Leadership(
            self.database,
            "leader",
            lease_seconds=60,
            renew_seconds=10,
            holder=holder,
            metrics=new_metrics(),
        )
        self.brake, self.gate = a_brake(self.database, limit=1000), a_gate(self.database)
        recorder = letter_recorder(
            self.gate,
            metrics=self.metrics,
            replica=holder,
            unavailable_after_seconds=AVAILABILITY.unavailable_after_seconds,
        )
        self.ender = letter_ender(self.database, brake=self.brake, gate=self.gate, recorder=recorder)

    def consumer_of(self, queue: str, *, batch_size: int = 10) -> QueueConsumer[DeadLetter]:
        return QueueConsumer(
            self.address,
            self.admin,
            queue=queue,
            prefetch=2 * batch_size,
            batch_size=batch_size,
            batch_wait_seconds=0.05,
            max_bytes=2**20,
            max_body_bytes=2**20,
            read=read,
            consumer_priority=-10,
            consumer_tag=f"dlq-handler.{uuid4().hex}",
        )

    async def confirm_absences(self) -> None:
        """Two looks, far enough apart."""
        await self.watch.tick()
        self.clock += CONFIRM_AFTER_SECONDS
        await self.watch.tick()

    async def sql(self, statement: str, **parameters: Any) -> list[Any]:
        async with self.database.transaction() as tx:
            result = await tx.run(statement, **parameters)
            return list(result.all()) if result.returns_rows else []

    async def letters(self) -> list[Any]:
        return await self.sql("SELECT * FROM own.letter ORDER BY id")

    async def status(self, worker_id: int) -> str:
        [row] = await self.sql("SELECT CAST(status AS text) AS s FROM worker WHERE id = :id", id=worker_id)
        return str(row.s)

    async def ready(self, worker_id: int) -> int:
        counts = (await self.queue_observer.count([worker_id]))[worker_id]
        assert counts is not None
        return counts.ready

    async def close(self) -> None:
        await self.admin.close()
        await self.database.dispose()


class Fleet:
    def __init__(
        self, executor: StockExecutor, make: Callable[[str], StockWorker], stack: AsyncExitStack
    ) -> None:
        self.executor, self._make, self._stack = executor, make, stack

    async def worker(self, name: str, *, heartbeat_age_seconds: float = 0.0) -> StockWorker:
        worker = await self._stack.enter_async_context(self._make(name))
        await worker.heartbeat(age_seconds=heartbeat_age_seconds)
        return worker

    async def dispatch(self, worker: StockWorker, count: int) -> list[Dispatch]:
        return list(await self.executor.schedule_many(count, worker.id))

    async def statuses(self, dispatched: list[Dispatch]) -> list[str]:
        rows = await self.executor.database.session.fetch(
            "SELECT status::text AS status FROM execution WHERE id = ANY($1::bigint[]) ORDER BY id",
            [dispatch.execution_id for dispatch in dispatched],
        )
        return [row["status"] for row in rows]


@pytest.fixture
async def post(vhost: str, database: str) -> AsyncIterator[Watchpost]:
    post = Watchpost(vhost, database)
    await migrate.upgrade(post.database)
    await post.leadership.tick()
    yield post
    await post.close()


@pytest.fixture
async def fleet(vhost: str, database: str) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        executor = await stack.enter_async_context(StockExecutor(vhost, database))
        yield Fleet(executor, lambda name: StockWorker(vhost, database, name=name), stack)
