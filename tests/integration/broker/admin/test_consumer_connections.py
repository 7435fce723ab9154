"""Which connections consume a worker's queue, and how old they are, by the real management API."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.workers.connection_source import ConnectionSource
from dlq_handler.workers.worker_process import ConnectionObservation, KnownConnection
from sandbox.attune.topology import verify_redeclare, worker_queue
from sandbox.servers import RabbitMQ
from tests.support.builders import NOON
from tests.support.eventually import eventually


@pytest.fixture
async def queue(vhost: str) -> str:
    await verify_redeclare(vhost, {1: 60_000})
    return worker_queue(1)


@pytest.fixture
def api(vhost: str, rabbitmq: RabbitMQ) -> ManagementApi:
    return as_user(rabbitmq, vhost, rabbitmq.user, rabbitmq.password)


def as_user(rabbitmq: RabbitMQ, vhost: str, user: str, password: str) -> ManagementApi:
    url = rabbitmq.management_url.replace("://", f"://{user}:{password}@")
    return ManagementApi(url, vhost=vhost.rpartition("/")[2])


def a_source(api: ManagementApi) -> ConnectionSource:
    return ConnectionSource(api, names=WorkerQueueNames(), own_tag_prefix="dlq-handler.")


@asynccontextmanager
async def consumed(vhost: str, queue: str, tag: str = "worker-1") -> AsyncIterator[None]:
    async def keep(_: AbstractIncomingMessage) -> None: ...

    async with await aio_pika.connect(vhost) as connection:
        channel = await connection.channel()
        await (await channel.get_queue(queue)).consume(keep, consumer_tag=tag)
        yield


async def listed(api: ManagementApi, queue: str, count: int) -> set[str]:
    """The connections, once the API lists so many: it does so seconds late."""

    names: set[str] = set()

    async def are_listed() -> bool:
        consumers = (await api.consumers_of([queue], within_seconds=10))[queue]
        assert consumers is not None
        assert len(consumers) == count
        # The API lists a consumer a moment before it knows its connection.
        assert all(one.connection for one in consumers)
        names.update(one.connection for one in consumers)
        return True

    await eventually(are_listed, timeout=60, every=0.3)
    return names


async def test_each_process_has_a_connection_of_its_own_name_and_a_missing_queue_no_consumers(
    vhost: str, api: ManagementApi, queue: str
) -> None:
    missing = "worker.2.executions"
    assert await api.consumers_of([queue, missing], within_seconds=10) == {queue: (), missing: ()}
    async with consumed(vhost, queue):
        [first] = await listed(api, queue, 1)
    await listed(api, queue, 0)
    async with consumed(vhost, queue):
        [second] = await listed(api, queue, 1)
        ages = await api.connection_ages([second, first], within_seconds=10)
    assert first != second
    assert "" not in {first, second}
    assert ages.keys() == {second}, "the first one is closed"
    assert -2 <= ages[second] < 120


async def test_source_reads_one_connection_with_its_age_two_and_none(
    vhost: str, api: ManagementApi, queue: str
) -> None:
    source = a_source(api)
    assert await source.ask({1: None}) == {1: ConnectionObservation(names=frozenset())}
    # dlq-handler drains the queue of an unavailable worker, and is no worker.
    async with consumed(vhost, queue, "dlq-handler.one.1234"), consumed(vhost, queue):
        await listed(api, queue, 2)
        sight = (await source.ask({1: None}))[1]
        assert sight is not None
        [name] = sight.names
        assert sight.age_seconds is not None
        known = KnownConnection(
            worker_id=1, checked_at=NOON, observed_at=NOON, connection=name, found_at=NOON
        )
        assert await source.ask({1: known}) == {1: ConnectionObservation(names=frozenset({name}))}
        lost = (await source.ask({1: replace(known, missing_since=NOON)}))[1]
        assert lost is not None
        assert lost.age_seconds is not None, "another connection may have its name now"
        async with consumed(vhost, queue, "worker-1-again"):
            await listed(api, queue, 3)
            both = (await source.ask({1: known}))[1]
            assert both is not None
            assert len(both.names) == 2
    assert source.api_error is None


async def test_user_without_the_tag_monitoring_gets_no_answer_and_the_reason(
    vhost: str, rabbitmq: RabbitMQ, api: ManagementApi, queue: str
) -> None:
    """It may see the consumers, but not how old the connections of another user are."""
    name = f"reader-{uuid.uuid4().hex[:8]}"
    await rabbitmq.ask("PUT", f"users/{name}", {"password": "pw", "tags": "management"})
    try:
        nothing = {"configure": "", "write": "", "read": ""}
        await rabbitmq.ask("PUT", f"permissions/{vhost.rpartition('/')[2]}/{name}", nothing)
        source = a_source(as_user(rabbitmq, vhost, name, "pw"))
        async with consumed(vhost, queue):
            await listed(api, queue, 1)
            assert await source.ask({1: None}) == {1: None}
        assert "monitoring" in source.trouble
    finally:
        await rabbitmq.ask("DELETE", f"users/{name}")


async def test_api_that_is_not_there_gives_no_answer() -> None:
    source = a_source(ManagementApi("http://127.0.0.1:9", vhost="/", timeout_seconds=2))
    assert await source.ask({1: None}) == {1: None}
    assert source.trouble.startswith("a restart cannot be detected without the management API: ")
