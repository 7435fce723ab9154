"""A broker out of memory takes no publishes: dead letters are decided, and each completion is published once, later."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.errors import Unavailable
from sandbox.attune.worker import StockWorker
from sandbox.servers import PrivateRabbitMQ
from sandbox.servers.ports import free_port
from tests.crash.world import WAIT_FOR_LOCKS, CrashWorld
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess
from tests.support.world import management_url


@pytest.fixture
async def alarmed(rabbitmq: PrivateRabbitMQ) -> AsyncIterator[PrivateRabbitMQ]:
    """The broker, and no alarm at the end, however the test ends."""
    yield rabbitmq
    await rabbitmq.set_memory_alarm(False)


async def test_letters_are_decided_during_an_alarm_and_their_events_published_once_after_it(
    world: CrashWorld, alarmed: PrivateRabbitMQ
) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    async with world.sidecar(
        **WAIT_FOR_LOCKS, broker__management_url=nowhere, ui__refresh_seconds="1"
    ) as sidecar:
        await world.settled_once(await world.dead_lettered(20))
        dispatches = await world.schedule(50)
        async with world.executions_locked():
            await world.dead_letter(dispatches)
            await eventually(world.a_batch_waits)
            await alarmed.set_memory_alarm(True)
        await eventually(lambda: has_pending(sidecar, 50))
        assert await world.failed() == 70
        assert len(await world.auditor.completions()) == 20
        # Known by its own connection: no management API answers.
        await eventually(lambda: has_alarm_state(sidecar, "problem"), timeout=60)
        await alarmed.set_memory_alarm(False)
        await world.settled_once(dispatches)
        await eventually(lambda: has_alarm_state(sidecar, "unknown"), timeout=60)


async def test_a_sidecar_started_during_an_alarm_publishes_once_after_it(
    world: CrashWorld, alarmed: PrivateRabbitMQ
) -> None:
    """The broker reports an alarm only to connections that have published, and then it is too late:
    what it sent waits in the broker's socket, and is delivered when the alarm ends.
    """
    dispatches = await world.dead_lettered(50)
    await alarmed.set_memory_alarm(True)
    async with world.sidecar() as sidecar:
        await eventually(lambda: has_pending(sidecar, 50))
        await eventually(lambda: sidecar.events("loop.interrupted"))
        await alarmed.set_memory_alarm(False)
        await world.settled_once(dispatches)


async def test_status_reports_an_alarm_while_it_lasts(alarmed: PrivateRabbitMQ) -> None:
    api = urlsplit(alarmed.management_url)
    broker = ManagementApi(f"http://{alarmed.user}:{alarmed.password}@{api.netloc}", vhost="/")

    async def is_reported(*kinds: str) -> bool:
        try:
            return [alarm.split(" on ")[0] for alarm in await broker.alarms()] == list(kinds)
        except Unavailable:
            # A node that has just started has no statistics.
            return False

    await eventually(is_reported, timeout=30)
    await alarmed.set_memory_alarm(True)
    await eventually(lambda: is_reported("memory alarm"), timeout=30)


# A deadline of 8 s: TTL and grace. Everything else is quicker than that.
SHORT_DEADLINE: dict[str, Any] = {
    "ATTUNE__MESSAGE_QUEUE__RABBITMQ__WORKER_QUEUE_TTL_MS": "2000",
    "ATTUNE__EXECUTOR__SCHEDULED_TIMEOUT": "1",
    "monitor__interval_seconds": "1",
    "grace__after_ttl_seconds": "6",
    "ATTUNE__WORKER__HEARTBEAT_INTERVAL": "1",
    "worker__unavailable_after_seconds": "4",
    "monitor__confirm_after_seconds": "1",
}


async def test_execution_whose_dispatch_hangs_in_an_alarm_is_not_failed_and_runs_after_it(
    world: CrashWorld, alarmed: PrivateRabbitMQ
) -> None:
    """An empty queue proves nothing while publishes hang. It proves that a message is lost before and after that."""
    api = management_url(alarmed)
    worker = StockWorker(world.amqp_url, world.database_url, name="alive", ttl_ms=2000, heartbeat_seconds=1)
    async with worker, world.sidecar(**SHORT_DEADLINE, broker__management_url=api):
        await worker.consume()
        # Its message is never published. That it is failed shows that an empty queue counts by now.
        await world.is_failed(await world.schedule_on(worker.id))

        await alarmed.set_memory_alarm(True)
        hanging = await world.schedule_on(worker.id)
        publishing = asyncio.create_task(world.publish_patiently(hanging))
        try:
            await eventually(lambda: world.is_older_than(hanging, 6))
            # Of a worker that is unavailable, so this one is failed; the other one was older all the while.
            await world.is_failed(await world.schedule_on(world.worker_id))
            assert await world.status(hanging) == "scheduled"
            assert not publishing.done()
        finally:
            await alarmed.set_memory_alarm(False)
            await publishing

        await eventually(lambda: world.has_status(hanging, "completed"), timeout=60)
        assert await world.changes(hanging) == ["running", "completed"]
        # The worker writes the status first.
        await eventually(lambda: worker.ran == [hanging.execution_id])
        # And one that is really lost is failed again.
        await world.is_failed(await world.schedule_on(worker.id))


async def has_alarm_state(sidecar: SidecarProcess, health: str) -> bool:
    return bool({one["check"]: one for one in await sidecar.diagnoses()}["broker alarm"]["health"] == health)


async def has_pending(sidecar: SidecarProcess, count: int) -> bool:
    return (await sidecar.metrics())["dlq_handler_outbox_pending"] == count
