"""Queues of workers that are retired while the host goes on publishing to them, and the account of its messages.

The host publishes with confirms and without `mandatory`: to a key without a queue it is confirmed and lost. So every
confirmed message must be found again: its execution was run by a worker, or the message is on record.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiormq.exceptions import ChannelNotFoundEntity

from dlq_handler.broker.pubsub import QueueType
from dlq_handler.database.engine import Database as OwnDatabase
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.lifecycle import flows_sql
from dlq_handler.lifecycle.flow import Flow, FlowStatus, StopStep
from dlq_handler.lifecycle.flow_blueprint import worker_blueprint
from dlq_handler.lifecycle.options import LifecycleOptions
from dlq_handler.lifecycle.wishes import retirement_id
from dlq_handler.operations.flow_operations import FlowOperations
from dlq_handler.operations.operation import Actor, Client
from dlq_handler.topology.blueprint import RETIRED_QUEUE
from sandbox.attune import messages, topology
from sandbox.attune.amqp import Publisher, open_connection
from sandbox.attune.database import Database
from sandbox.attune.executor import mark_scheduled
from sandbox.attune.worker import StockWorker
from tests.crash.world import CrashWorld
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess

SABOTAGE = str(Path(__file__).parent.parent / "support" / "flow_sabotage.py")

# Short times in the proportions of the real ones: a worker is unavailable after several heartbeats.
SETTINGS: dict[str, Any] = {
    "lifecycle__enabled": "true",
    "lifecycle__interval_seconds": "0.1",
    "lifecycle__settle_seconds": "0",
    "lifecycle__archive_limit": "100000",
    "ATTUNE__WORKER__HEARTBEAT_INTERVAL": "1",
    "worker__unavailable_after_seconds": "3",
    "monitor__interval_seconds": "1",
    "monitor__confirm_after_seconds": "1",
    "brake__max_decisions_per_minute": "0",
}
HEARTBEAT_SECONDS = 0.5

WORKER = worker_blueprint()
QUORUM = replace(
    WORKER, name="quorum", flow=tuple(replace(queue, type=QueueType.QUORUM) for queue in WORKER.flow)
)
BLUEPRINTS = {"worker": WORKER, "quorum": QUORUM}
ANN = Actor(username="ann", client=Client.CLI)

_BATCH = 5


class HostPublisher:
    """Schedules executions on workers and publishes their dispatches, whatever the workers do. Also a cancellation now
    and then, which is no dispatch.
    """

    def __init__(self, database: Database, publisher: Publisher) -> None:
        self._database, self._publisher = database, publisher
        self.confirmed: dict[str, int] = {}
        """Execution by message id."""
        self.cancellations: set[str] = set()
        """Message ids of confirmed cancellations."""

    async def run(self, stop: asyncio.Event, worker_ids: Sequence[int], *, cancels: bool) -> None:
        while not stop.is_set():
            for worker_id in worker_ids:
                await self.publish(worker_id, _BATCH)
                if cancels:
                    await self._cancel(worker_id)
            await asyncio.sleep(0.1)  # a load has a pace

    async def publish(self, worker_id: int, count: int) -> list[int]:
        created = await self._database.session.fetch(
            "INSERT INTO execution (action_ref, status) SELECT 'core.echo', 'scheduling'"
            " FROM generate_series(1, $1) RETURNING id",
            count,
        )
        ids = [row["id"] for row in created]
        for dispatch in await mark_scheduled(self._database.session, ids, worker_id):
            await self._publisher.publish(dispatch.message)
            self.confirmed[dispatch.message.message_id] = dispatch.execution_id
        return ids

    async def _cancel(self, worker_id: int) -> None:
        message = messages.cancel_requested(execution_id=0, worker_id=worker_id)
        await self._publisher.publish(message)
        self.cancellations.add(message.message_id)


class FlowCrashWorld:
    def __init__(self, world: CrashWorld, stack: AsyncExitStack, publisher: HostPublisher) -> None:
        self.world, self._stack, self.publisher = world, stack, publisher
        self._workers: list[StockWorker] = []
        self._present: list[StockWorker] = []
        self._database = OwnDatabase(world.database_url)
        stack.push_async_callback(self._database.dispose)
        self._operations = FlowOperations(
            self._database, LifecycleOptions(enabled=True), BLUEPRINTS, names=WorkerQueueNames()
        )

    @asynccontextmanager
    async def replica(
        self, name: str, *points: str, ready: bool = True, **settings: Any
    ) -> AsyncIterator[SidecarProcess]:
        """`points`: of flow_sabotage.py."""
        async with self.world.sidecar(name, start=False, **SETTINGS | settings) as sidecar:
            await self.start_replica(sidecar, *points, ready=ready)
            yield sidecar

    async def start_replica(self, sidecar: SidecarProcess, *points: str, ready: bool = True) -> None:
        program = (SABOTAGE, ",".join(points)) if points else ("-m", "dlq_handler")
        await sidecar.start(program=program, ready=ready)

    async def worker(self, name: str) -> StockWorker:
        """Registered, with its queues. It is ended with the test."""
        worker = self._new_worker(name, topology.WorkerQueues.OWN)
        await self.begins(worker)
        return worker

    async def waiting_worker(self, name: str) -> StockWorker:
        """Registered. It begins when a flow has made its queues."""
        worker = self._new_worker(name, topology.WorkerQueues.FLOW)
        with suppress(topology.QueueMissing):
            await worker.start()
        return worker

    def _new_worker(self, name: str, queues: topology.WorkerQueues) -> StockWorker:
        worker = StockWorker(
            self.world.amqp_url,
            self.world.database_url,
            name=name,
            heartbeat_seconds=HEARTBEAT_SECONDS,
            queues=queues,
        )
        self._workers.append(worker)
        self._stack.push_async_callback(worker.close)
        return worker

    async def begins(self, worker: StockWorker) -> None:
        await worker.start()
        self._present.append(worker)

    async def working(self, name: str) -> StockWorker:
        worker = await self.worker(name)
        await worker.consume()
        return worker

    async def leaves(self, worker: StockWorker) -> None:
        """In order: it finishes what it has begun."""
        self._present.remove(worker)
        await worker.stop()

    async def vanishes(self, worker: StockWorker) -> None:
        """As after kill -9. The host's monitor sets its status later."""
        self._present.remove(worker)
        await worker.die()
        await self.world.sql("UPDATE worker SET status = 'inactive' WHERE id = $1", worker.id)

    @asynccontextmanager
    async def publishing(self, *workers: StockWorker, cancels: bool = True) -> AsyncIterator[None]:
        """`cancels` False: only dispatches, so that one queue less is drained, which takes a second."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            ids = [worker.id for worker in workers]
            group.create_task(self.publisher.run(stop, ids, cancels=cancels))
            group.create_task(self._let_time_pass(stop))
            try:
                yield
            finally:
                stop.set()

    async def _let_time_pass(self, stop: asyncio.Event) -> None:
        """A stop waits for executions that were scheduled before the unbind and sent after it: they are on record as
        left to the timeout monitor. Here they are soon old enough for it.
        """
        while not stop.is_set():
            await self._age("e.updated <= (SELECT max(rerouted_at) FROM dlq_handler.flow)", seconds=1200)
            await asyncio.sleep(0.2)  # as above

    async def _age(self, condition: str, *, seconds: int) -> None:
        """Only those on record: what was lost is never ended. Without the triggers, which would overwrite `updated`."""
        async with self.world.auditor.database.transaction() as session:
            await session.execute(
                f"""
                SET LOCAL session_replication_role = replica;
                UPDATE execution e SET updated = now() - interval '{seconds} s'
                 WHERE status = 'scheduled' AND updated > now() - interval '{seconds - 60} s' AND {condition}
                   AND EXISTS (SELECT FROM dlq_handler.letter l WHERE l.execution_id = e.id
                                  AND l.outcome IN ('left_to_monitor', 'stale_attempt'))
                """
            )

    async def start(self, worker: StockWorker, blueprint: str = "worker") -> str:
        """A flow of this worker's queues, which is active now. Returns its id."""
        flow_id = f"w{worker.id}"
        await self._operations.start(ANN, flow_id, blueprint=blueprint, params={"id": str(worker.id)})
        await self.until(flow_id, FlowStatus.ACTIVE)
        return flow_id

    async def stop(self, flow_id: str) -> None:
        await self._operations.stop(ANN, flow_id)

    async def retire(self, worker: StockWorker) -> str:
        """`dlq-handler queues retire` for its queues. Returns the id of the record."""
        wishes = await self._operations.retire(ANN, [worker.id])
        assert not wishes.refused
        return retirement_id(worker.id)

    async def flow(self, flow_id: str) -> Flow:
        async with self._database.transaction() as tx:
            flow = await flows_sql.read_flow(tx, flow_id)
        assert flow is not None
        return flow

    async def until(self, flow_id: str, status: FlowStatus, step: StopStep | None = None) -> None:
        async def is_there() -> bool:
            flow = await self.flow(flow_id)
            assert (flow.status, step and flow.step, flow.last_error) == (status, step, flow.last_error)
            return True

        await eventually(is_there, timeout=90, every=0.05)

    async def until_paused(self, flow_id: str, step: str) -> None:
        async def is_paused() -> bool:
            error = (await self.flow(flow_id)).last_error
            assert f"paused after step {step}" in (error or ""), error
            return True

        await eventually(is_paused, timeout=90, every=0.05)

    async def until_returned(self, flow_id: str, status: FlowStatus) -> None:
        """Its stop was aborted, and its queues are bound."""

        async def is_aborted() -> bool:
            flow = await self.flow(flow_id)
            assert (flow.status, flow.aborted_at is not None) == (status, True), flow
            return True

        await eventually(is_aborted, timeout=60, every=0.05)

    async def a_registration_waits(self) -> bool:
        """Until the worker's row is free."""
        waiting = await self.world.sql(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            " AND query LIKE '%INSERT INTO worker%'"
        )
        return bool(waiting)

    async def lease_is_free(self) -> None:
        """As if the lease of a dead leader had run out."""
        await self.world.sql("DELETE FROM dlq_handler.lease")

    async def runs_dispatches(self, worker: StockWorker) -> None:
        """What is dispatched from now on is run by the worker: its queue is bound."""
        [execution_id] = await self.publisher.publish(worker.id, 1)
        await eventually(lambda: execution_id in worker.ran, timeout=60)

    async def queues(self, worker_id: int) -> list[str]:
        """Those of the worker that exist."""
        names = [queue.name for queue in topology.worker_queues(worker_id)]
        return [name for name in names if await self._exists(name)]

    async def _exists(self, queue: str) -> bool:
        async with self.world.channel() as channel:
            try:
                await channel.declare_queue(queue, passive=True)
            except ChannelNotFoundEntity:
                return False
        return True

    async def nothing_is_lost(self) -> None:
        """Every confirmed message was consumed by a worker, or is on record; and every execution ends."""
        for worker in self._workers:
            await self._read_cancellations(worker.id)
        await eventually(self._is_accounted_for, timeout=60, every=0.1)
        for worker in list(self._present):
            await self.leaves(worker)
        await eventually(self._has_ended, timeout=90, every=0.1)

    async def _read_cancellations(self, worker_id: int) -> None:
        """As a worker that is there would: the reference worker reads none."""
        name = topology.worker_queues(worker_id)[-1].name
        if not await self._exists(name):
            return
        async with self.world.channel() as channel:
            queue = await channel.declare_queue(name, passive=True)
            while message := await queue.get(no_ack=True, fail=False):
                self.publisher.cancellations.discard(message.message_id or "")

    async def _is_accounted_for(self) -> bool:
        rows = await self.world.sql("SELECT message_id FROM dlq_handler.letter")
        on_record = {row[0] for row in rows}
        run = {execution_id for worker in self._workers for execution_id in worker.ran}
        lost = {
            message_id
            for message_id, execution_id in self.publisher.confirmed.items()
            if message_id not in on_record and execution_id not in run
        }
        lost |= self.publisher.cancellations - on_record
        assert not lost, (
            f"{len(lost)} lost of {len(self.publisher.confirmed)} dispatches and the cancellations"
        )
        assert await topology.ready_count(self.world.amqp_url, RETIRED_QUEUE) == 0
        return True

    async def _has_ended(self) -> bool:
        await self._age("true", seconds=7200)
        open_ones = await self.world.sql(
            "SELECT id, status::text FROM execution WHERE id = ANY ($1::bigint[])"
            " AND status NOT IN ('completed', 'failed', 'abandoned', 'cancelled', 'timeout')",
            list(self.publisher.confirmed.values()),
        )
        assert open_ones == []
        return True


@asynccontextmanager
async def flow_crash_world(world: CrashWorld) -> AsyncIterator[FlowCrashWorld]:
    async with AsyncExitStack() as stack:
        database = await Database.open(world.database_url)
        stack.push_async_callback(database.close)
        connection = await stack.enter_async_context(await open_connection(world.amqp_url))
        yield FlowCrashWorld(world, stack, HostPublisher(database, Publisher(connection)))
