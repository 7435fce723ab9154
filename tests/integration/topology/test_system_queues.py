"""Which system queues exist, on a real broker, with the management API and without it."""

import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.topology.system_queues import SystemQueueReader, SystemQueues
from sandbox.attune.topology import verify_redeclare
from sandbox.servers.ports import free_port

ENFORCEMENTS, SENSORS = "attune.enforcements.queue", "attune.events.queue"


async def delete(link: AdminConnection, *queues: str) -> None:
    async with link.channel("change the broker") as channel:
        for queue in queues:
            await channel.queue_delete(queue)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_a_deleted_queue_is_missing_until_its_service_starts(
    link: AdminConnection, api: ManagementApi, vhost: str, clock: Clock
) -> None:
    reader = SystemQueueReader(QueueCounter(link, api=api, now=clock))
    await verify_redeclare(vhost)
    assert await reader.read() == SystemQueues()
    await delete(link, ENFORCEMENTS, SENSORS)
    clock.now += 60
    assert (await reader.read()).missing == (ENFORCEMENTS, SENSORS)
    await verify_redeclare(vhost)
    clock.now += 60
    assert await reader.read() == SystemQueues()


async def test_a_host_without_sensors_misses_nothing(
    link: AdminConnection, api: ManagementApi, vhost: str, clock: Clock
) -> None:
    await verify_redeclare(vhost)
    await delete(link, SENSORS)
    reader = SystemQueueReader(QueueCounter(link, api=api, now=clock))
    assert await reader.read() == SystemQueues()


async def test_without_the_management_api_a_missing_queue_is_known_after_a_second_question(
    link: AdminConnection, vhost: str, clock: Clock
) -> None:
    """Each question about a missing queue leaves error lines in the broker's log."""
    no_api = ManagementApi(f"http://x:x@127.0.0.1:{free_port()}", vhost="/")
    reader = SystemQueueReader(QueueCounter(link, api=no_api, now=clock))
    await verify_redeclare(vhost)
    await delete(link, ENFORCEMENTS, SENSORS)
    first = await reader.read()
    assert first.missing == ()
    assert "leaves error lines" in first.unknown[ENFORCEMENTS]
    found = first
    for _ in range(4):
        clock.now += 61
        found = await reader.read()
    assert found == SystemQueues(missing=(ENFORCEMENTS,))
