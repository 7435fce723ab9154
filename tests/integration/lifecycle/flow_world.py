"""Flows on real servers: workers that come and go, and the leader's runner, ticked by hand."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import pytest

from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.rabbitmq_backend import RabbitMQBackend
from dlq_handler.database.leadership import Leadership
from dlq_handler.dead_letters.drain import RetiredQueueDrainer
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.lifecycle import flows_sql
from dlq_handler.lifecycle.flow import Flow, FlowStatus
from dlq_handler.lifecycle.flow_actions import FlowActions
from dlq_handler.lifecycle.flow_blueprint import FlowBlueprint, QueueTemplate, worker_blueprint
from dlq_handler.lifecycle.observe import FlowObserver
from dlq_handler.lifecycle.options import LifecycleOptions
from dlq_handler.lifecycle.runner import FlowRunner
from dlq_handler.operations.flow_operations import FlowOperations
from dlq_handler.operations.operation import Actor, Client
from dlq_handler.rooms import new_metrics
from dlq_handler.topology.blueprint import RETIRED_QUEUE
from sandbox.attune.worker import StockWorker
from tests.integration.topology.broker_side import declare_queue, delete_queue, keys_bound, queue_names
from tests.integration.workers.conftest import AVAILABILITY, Fleet, Watchpost, fleet, post
from tests.integration.workers.test_drain import SetConsumers

__all__ = ["FlowWorld", "fleet", "flows", "post"]

ANN = Actor(username="ann", client=Client.CLI)
SHOP = FlowBlueprint(
    name="shop",
    params=("region",),
    flow=(
        QueueTemplate(
            name="shop.{region}.orders",
            exchange="attune.executions",
            keys=("orders.{region}",),
            contents="archive",
        ),
    ),
    shared=(QueueTemplate(name="shop.log", exchange="attune.events", keys=("log",)),),
)
BLUEPRINTS = {"worker": worker_blueprint(), "shop": SHOP}


class FlowWorld:
    def __init__(self, post: Watchpost, fleet: Fleet, api: ManagementApi, stack: AsyncExitStack) -> None:
        self.post, self.fleet, self.api, self._stack = post, fleet, api, stack
        self.options = LifecycleOptions(enabled=True, settle_seconds=0, consumer_wait_seconds=0)
        self.operations = self.operations_with(self.options)

    def operations_with(self, options: LifecycleOptions) -> FlowOperations:
        return FlowOperations(self.post.database, options, BLUEPRINTS, names=WorkerQueueNames())

    def with_options(self, **changes: Any) -> LifecycleOptions:
        return LifecycleOptions(**self.options.model_dump() | changes)

    async def runner(self, holder: str = "one", *, takes_lease: bool = True, **options: Any) -> FlowRunner:
        """Of a process that leads from now on."""
        post = self.post
        if takes_lease:
            await post.sql("DELETE FROM own.lease")
        leadership = Leadership(
            post.database, "leader", holder=holder, metrics=new_metrics(), lease_seconds=60
        )
        await leadership.tick()
        backend = RabbitMQBackend(post.address)
        self._stack.push_async_callback(backend.close)
        # The watchpost stands for a gate that has watched for an hour.
        gate = cast("Any", post)
        observer = FlowObserver(post.database, backend, gate, availability=AVAILABILITY)
        drainer = RetiredQueueDrainer(
            post.database,
            leadership,
            gate,
            post.ender,
            consumers=SetConsumers(post.consumer_of),
            availability=AVAILABILITY,
        )
        chosen = self.with_options(**options)
        actions = FlowActions(
            post.database, backend, drainer, leadership, observer, options=chosen, holder=holder
        )
        return FlowRunner(post.database, leadership, observer, actions, chosen, availability=AVAILABILITY)

    async def started(self, flow_id: str = "w7", worker_id: int = 7) -> FlowRunner:
        runner = await self.runner()
        await self.start(flow_id, id=str(worker_id))
        await runner.tick()
        assert (await self.flow(flow_id)).status is FlowStatus.ACTIVE
        return runner

    async def start(self, flow_id: str = "w7", blueprint: str = "worker", **params: str) -> None:
        await self.operations.start(ANN, flow_id, blueprint=blueprint, params=params, comment="test")

    async def stop(self, flow_id: str = "w7") -> None:
        await self.operations.stop(ANN, flow_id, comment="test")

    async def flow(self, flow_id: str = "w7") -> Flow:
        async with self.post.database.transaction() as tx:
            flow = await flows_sql.read_flow(tx, flow_id)
        assert flow is not None
        return flow

    async def set_flow(self, flow_id: str = "w7", **columns: str) -> None:
        """Each value is SQL: time is set back instead of waited for."""
        assigned = ", ".join(f"{name} = {value}" for name, value in columns.items())
        await self.post.sql(
            f"UPDATE own.flow SET {assigned}, version = version + 1 WHERE id = :id", id=flow_id
        )  # of this test

    async def worker(self, name: str = "seven") -> StockWorker:
        """Registered and active, its queues declared. It has not begun to consume."""
        return await self.fleet.worker(name)

    async def stopped_worker(self, name: str = "seven") -> StockWorker:
        """It has just stopped in order."""
        worker = await self.worker(name)
        await self.post.sql("UPDATE worker SET status = 'inactive' WHERE id = :id", id=worker.id)
        return worker

    async def publish(self, exchange: str, key: str, body: bytes = b"{}") -> None:
        async with self.post.admin.channel("publish for a test") as channel:
            await channel.basic_publish(body, exchange=exchange, routing_key=key)

    async def ready(self, queue: str) -> int:
        async with self.post.admin.channel("count for a test") as channel:
            return (await channel.queue_declare(queue, passive=True)).message_count or 0

    async def is_ready(self, queue: str, count: int) -> bool:
        return await self.ready(queue) == count

    async def queues(self) -> set[str]:
        return await queue_names(self.api)

    async def keys(self, queue: str, exchange: str = "attune.executions") -> set[str]:
        return await keys_bound(self.api, queue, exchange)

    async def retired_keys(self) -> set[str]:
        return await self.keys(RETIRED_QUEUE)

    async def declare(self, queue: str, **arguments: str | int) -> None:
        await declare_queue(self.post.admin, queue, **arguments)

    async def delete(self, queue: str) -> None:
        await delete_queue(self.post.admin, queue)

    async def unbind(self, queue: str, key: str, **arguments: str) -> None:
        async with self.post.admin.channel("unbind for a test") as channel:
            await channel.queue_unbind(queue, "attune.executions", key, arguments={**arguments})

    @asynccontextmanager
    async def consumer_of(self, queue: str) -> AsyncIterator[None]:
        """Holds what it gets."""
        async with self.post.admin.channel("consume for a test", timeout_seconds=60) as channel:
            await channel.basic_qos(prefetch_count=1)
            await channel.basic_consume(queue, _hold)
            yield

    async def cordon(self, worker_id: int) -> Mapping[str, object]:
        [row] = await self.post.sql("SELECT cordoned, cordon_reason FROM worker WHERE id = :id", id=worker_id)
        return dict(row._mapping)


async def _hold(_: object) -> None:
    await asyncio.sleep(0)


@pytest.fixture
async def flows(post: Watchpost, fleet: Fleet, api: ManagementApi) -> AsyncIterator[FlowWorld]:
    async with AsyncExitStack() as stack:
        yield FlowWorld(post, fleet, api, stack)
