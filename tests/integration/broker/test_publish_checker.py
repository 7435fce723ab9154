"""A publish check on a real broker: it is confirmed, and leaves nothing behind."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import unquote, urlsplit

import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.outgoing import PUBLISH_CHECK_PREFIX
from dlq_handler.broker.publish_times import PublishRecorder
from dlq_handler.broker.publisher import PublishChecker, PublishCheckRefused, Publisher
from dlq_handler.errors import Unavailable
from dlq_handler.safety.publish_watch import PublishWatch
from sandbox.servers import RabbitMQ
from tests.support.eventually import eventually
from tests.support.tcp_proxy import TcpProxy


@pytest.fixture
def record() -> PublishRecorder:
    return PublishRecorder()


@asynccontextmanager
async def a_check(url: str, record: PublishRecorder) -> AsyncIterator[PublishChecker]:
    address = BrokerAddress(urls=[url])
    publisher = Publisher(address, publish_timeout_seconds=1, recorder=record)
    async with AdminConnection(address, call_timeout_seconds=1) as admin:
        yield PublishChecker(admin, publisher)
        await publisher.close()


@pytest.fixture
async def check(vhost: str, record: PublishRecorder) -> AsyncIterator[PublishChecker]:
    async with a_check(vhost, record) as check:
        yield check


async def left_behind(rabbitmq: RabbitMQ, vhost: str) -> list[str]:
    name = unquote(urlsplit(vhost).path.removeprefix("/"))
    answers = [await rabbitmq.ask("GET", f"{kind}/{name}") for kind in ("exchanges", "queues")]
    found = [one["name"] for answer in answers for one in answer.json()]
    return [one for one in found if one.startswith(PUBLISH_CHECK_PREFIX)]


async def test_it_is_confirmed_again_and_again_and_leaves_nothing_behind(
    record: PublishRecorder, rabbitmq: RabbitMQ, vhost: str
) -> None:
    async with a_check(vhost, record) as check:
        for _ in range(3):
            await check.publish()
        view = record.view()
        assert view.confirmed_seconds_ago is not None
        assert view.quick_seconds > view.confirmed_seconds_ago
        assert len(await left_behind(rabbitmq, vhost)) == 2

    async def is_gone() -> bool:
        return await left_behind(rabbitmq, vhost) == []

    await eventually(is_gone)


async def test_broker_that_does_not_answer_makes_it_fail_and_the_next_one_connects_again(
    vhost: str, record: PublishRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_after = "dlq_handler.broker.publish_times.SLOW_AFTER_SECONDS"
    async with TcpProxy.to(vhost) as proxy, a_check(proxy.url, record) as check:
        await check.publish()
        proxy.freeze()
        with monkeypatch.context() as scaled:
            scaled.setattr(slow_after, 0.25)
            with pytest.raises(Unavailable):
                await check.publish()
        assert record.view().were_slow_within(60)
        assert record.view().quick_seconds == 0
        await proxy.heal()
        await check.publish()
        assert record.view().quick_seconds > 0


async def test_watch_publishes_unless_another_publisher_has(
    check: PublishChecker, record: PublishRecorder
) -> None:
    watch = PublishWatch(check, record, deadline_seconds=240)
    with record.publishing() as other:
        other.is_confirmed = True
    confirmed = record.view().confirmed_seconds_ago
    await watch.tick()
    again = record.view().confirmed_seconds_ago
    assert confirmed is not None
    assert again is not None
    assert again > confirmed, "nothing was published"


async def test_watch_ends_when_asked_to(check: PublishChecker, record: PublishRecorder) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(PublishWatch(check, record, deadline_seconds=1).run(stop))

    async def has_published() -> bool:
        return record.view().confirmed_seconds_ago is not None

    await eventually(has_published)
    stop.set()
    async with asyncio.timeout(10):
        await running


async def test_missing_right_is_named(rabbitmq: RabbitMQ, vhost: str, record: PublishRecorder) -> None:
    name, user = unquote(urlsplit(vhost).path.removeprefix("/")), "no-publish-check"
    await rabbitmq.ask("PUT", f"users/{user}", {"password": user, "tags": ""})
    await rabbitmq.ask("PUT", f"permissions/{name}/{user}", {"configure": "", "write": "", "read": ""})
    parts = urlsplit(vhost)
    url = parts._replace(netloc=f"{user}:{user}@{parts.hostname}:{parts.port}").geturl()
    try:
        async with a_check(url, record) as check:
            with pytest.raises(PublishCheckRefused, match="publish_check"):
                await check.publish()
            await PublishWatch(check, record, deadline_seconds=240).tick()
        assert not record.view().were_slow_within(1e9)
    finally:
        await rabbitmq.ask("DELETE", f"users/{user}")
