"""What the broker says of workers' queues, put together from AMQP and the management API, and never guessed."""

from collections.abc import AsyncIterator, Mapping

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.broker.connection import BrokerAddress
from dlq_handler.broker.management import ManagementApi, QueueStatistics
from dlq_handler.broker.queue_probe import QueueCounts
from dlq_handler.domain.worker import QueueSight, WorkerQueueNames
from dlq_handler.errors import Unavailable
from dlq_handler.sandbox.attune.topology import verify_redeclare, worker_queue
from dlq_handler.sandbox.servers import RabbitMQ
from dlq_handler.services.worker_sight import SightPolicy, WorkerSight
from tests.support.eventually import eventually
from tests.support.tcp_proxy import TcpProxy


class Fixture:
    """A stock worker 1 whose queue is there, and a worker 2 without one."""

    def __init__(self, proxy: TcpProxy, api: ManagementApi, channel: aio_pika.abc.AbstractChannel) -> None:
        self.proxy, self.channel = proxy, channel
        self.api = api
        self.told: Mapping[str, QueueStatistics] | None = None
        """What the management API says; None = it is missing."""
        self.api_asked = 0
        self.clock = 0.0
        self.sight = WorkerSight(
            AdminLink(BrokerAddress(urls=[proxy.url])),
            statistics=self._statistics,
            names=WorkerQueueNames(),
            policy=SightPolicy(),
            now=lambda: self.clock,
        )

    async def _statistics(self) -> Mapping[str, QueueStatistics]:
        self.api_asked += 1
        if self.told is None:
            raise Unavailable("management API", "nobody listens")
        return self.told

    async def dispatch(self, count: int = 1) -> None:
        for _ in range(count):
            await self.channel.default_exchange.publish(aio_pika.Message(b"{}"), worker_queue(1))

    async def hold(self) -> None:
        """A consumer that takes everything and acknowledges nothing."""

        async def keep(_: AbstractIncomingMessage) -> None: ...

        await (await self.channel.get_queue(worker_queue(1))).consume(keep)

    def pass_seconds(self, seconds: float) -> None:
        self.clock += seconds


@pytest.fixture
async def it(vhost: str, rabbitmq: RabbitMQ) -> AsyncIterator[Fixture]:
    await verify_redeclare(vhost, {1: 60_000})
    credentials = f"://{rabbitmq.user}:{rabbitmq.password}@"
    api = ManagementApi(rabbitmq.management_url.replace("://", credentials), vhost=vhost.rpartition("/")[2])
    async with TcpProxy.to(vhost) as proxy, await aio_pika.connect(vhost) as connection:
        fixture = Fixture(proxy, api, await connection.channel())
        yield fixture
        await fixture.sight.close()


async def test_queue_is_seen_and_a_missing_one_is_none(it: Fixture) -> None:
    await it.dispatch(3)

    seen = await it.sight.look([1, 2])

    assert seen == {1: QueueSight(consumers=0, ready=3, unacked=None, ttl_ms=60_000), 2: None}
    assert it.sight.broker_trouble is None
    assert it.sight.api_trouble


async def test_what_consumers_hold_is_told_by_the_real_management_api(it: Fixture) -> None:
    await it.hold()
    await it.dispatch(2)

    async def is_told() -> bool:
        told = (await it.api.queue_statistics()).get(worker_queue(1))
        return told == QueueStatistics(ready=0, unacked=2, ttl_ms=60_000)

    await eventually(is_told, timeout=60, every=0.5)
    it.told = await it.api.queue_statistics()

    assert await it.sight.look([1]) == {1: QueueSight(consumers=1, ready=0, unacked=2, ttl_ms=60_000)}


async def test_message_on_its_way_from_ready_to_unacked_is_not_overlooked(it: Fixture) -> None:
    """By AMQP it is not ready any more; by the older statistics it is not unacked yet."""
    it.told = {worker_queue(1): QueueStatistics(ready=1, unacked=0, ttl_ms=60_000)}

    seen = (await it.sight.look([1]))[1]

    assert seen is not None
    assert (seen.ready, seen.unacked) == (1, 0)


async def test_counts_are_kept_for_a_moment_only(it: Fixture) -> None:
    assert await it.sight.count([1]) == {1: QueueCounts(ready=0, consumers=0)}
    await it.dispatch()
    assert await it.sight.count([1]) == {1: QueueCounts(ready=0, consumers=0)}

    it.pass_seconds(3)

    assert await it.sight.count([1, 2]) == {1: QueueCounts(ready=1, consumers=0), 2: None}


async def test_ttl_is_probed_once_and_again_after_minutes(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed: list[str] = []

    async def count_probes(_: AdminLink, queues: Mapping[str, int]) -> dict[str, int | None]:
        probed.extend(queues)
        return dict.fromkeys(queues, 60_000)

    monkeypatch.setattr("dlq_handler.services.worker_sight.queue_survey.probe_all_ttl_ms", count_probes)
    for _ in range(3):
        await it.sight.look([1, 2])
        it.pass_seconds(10)
    assert probed == [worker_queue(1)]

    it.pass_seconds(600)
    await it.sight.look([1])
    assert probed == [worker_queue(1)] * 2


async def test_look_that_decides_nothing_probes_no_ttl_and_uses_what_is_known(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ttl(sights: Mapping[int, QueueSight | None]) -> int | None:
        assert sights[1] is not None
        return sights[1].ttl_ms

    with monkeypatch.context() as patched:
        patched.delattr("dlq_handler.services.worker_sight.queue_survey.probe_all_ttl_ms")
        assert ttl(await it.sight.look_quietly([1])) is None
    assert ttl(await it.sight.look([1])) == 60_000
    it.pass_seconds(3)
    assert ttl(await it.sight.look_quietly([1])) == 60_000


async def test_api_that_tells_the_ttl_saves_the_probe(it: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    it.told = {worker_queue(1): QueueStatistics(ready=0, unacked=0, ttl_ms=77)}

    async def no_probe(_: AdminLink, queues: Mapping[str, int]) -> dict[str, int | None]:
        assert not queues
        return {}

    monkeypatch.setattr("dlq_handler.services.worker_sight.queue_survey.probe_all_ttl_ms", no_probe)

    seen = (await it.sight.look([1]))[1]

    assert seen is not None
    assert seen.ttl_ms == 77


async def test_missing_api_is_left_in_peace_for_a_while(it: Fixture) -> None:
    for _ in range(5):
        await it.sight.look([1])
        it.pass_seconds(5)
    assert it.api_asked == 1

    it.pass_seconds(60)
    it.told = {worker_queue(1): QueueStatistics(ready=0, unacked=4, ttl_ms=None)}
    seen = (await it.sight.look([1]))[1]
    assert seen is not None
    assert seen.unacked == 4
    assert it.sight.api_trouble is None


async def test_broker_that_is_away_leaves_workers_out_and_comes_back(it: Fixture) -> None:
    await it.sight.look([1, 2])
    it.pass_seconds(5)
    await it.proxy.refuse()

    assert await it.sight.look([1, 2]) == {}
    assert it.sight.broker_trouble

    await it.proxy.heal()
    assert set(await it.sight.look([1, 2])) == {1, 2}
    assert it.sight.broker_trouble is None


async def test_queue_without_a_ttl_is_told_from_one_whose_ttl_is_unknown(it: Fixture) -> None:
    await it.channel.declare_queue(worker_queue(3), durable=True)

    by_probe = await it.sight.look([3])
    it.pass_seconds(61)
    it.told = {worker_queue(3): QueueStatistics(ready=0, unacked=0, ttl_ms=None)}
    by_api = await it.sight.look([3])

    for seen in (by_probe[3], by_api[3]):
        assert seen is not None
        assert (seen.ttl_ms, seen.has_no_ttl) == (None, True)


async def test_ttl_that_the_broker_does_not_tell_is_unknown(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(_: AdminLink, _queues: Mapping[str, int]) -> dict[str, int | None]:
        return {}

    monkeypatch.setattr("dlq_handler.services.worker_sight.queue_survey.probe_all_ttl_ms", refused)

    seen = (await it.sight.look([1]))[1]

    assert seen is not None
    assert (seen.ttl_ms, seen.has_no_ttl) == (None, False)


async def test_longest_ttl_is_that_of_all_worker_queues_ever_seen(it: Fixture) -> None:
    assert await it.sight.longest_ttl_ms() is None
    await it.sight.look([1])
    assert await it.sight.longest_ttl_ms() == 60_000

    it.pass_seconds(61)
    it.told = {
        worker_queue(1): QueueStatistics(ready=0, unacked=0, ttl_ms=10),
        worker_queue(7): QueueStatistics(ready=0, unacked=0, ttl_ms=90_000),
        "somebody.elses": QueueStatistics(ready=0, unacked=0, ttl_ms=10**9),
    }
    assert await it.sight.longest_ttl_ms() == 90_000

    it.pass_seconds(61)
    it.told = {}
    assert await it.sight.longest_ttl_ms() == 90_000, "a message may be older than its queue"


async def test_probes_are_limited_per_minute_and_the_rest_has_an_unknown_ttl_until_then(
    it: Fixture, vhost: str
) -> None:
    workers = range(1, 63)
    await verify_redeclare(vhost, dict.fromkeys(workers, 60_000))

    def unprobed(seen: Mapping[int, QueueSight | None]) -> list[int]:
        return [one for one, sight in seen.items() if sight is not None and sight.ttl_ms is None]

    seen = await it.sight.look(workers)
    assert len(seen) == 62
    assert len(unprobed(seen)) == 2
    assert not any(sight.has_no_ttl for sight in seen.values() if sight is not None)

    it.pass_seconds(30)
    assert len(unprobed(await it.sight.look(workers))) == 2

    it.pass_seconds(30)
    assert unprobed(await it.sight.look(workers)) == []


async def test_missing_queues_are_asked_about_at_most_60_times_a_minute_and_the_rest_is_unknown(
    it: Fixture,
) -> None:
    workers = [1, *range(100, 200)]
    first = await it.sight.look(workers)
    assert first[1] is not None
    assert 60 <= list(first.values()).count(None) < 70
    for _ in range(4):
        it.pass_seconds(10)
        assert None not in (await it.sight.look(workers)).values()
    it.pass_seconds(61)
    again = await it.sight.look(workers)
    assert again[1] is not None
    assert 60 <= list(again.values()).count(None) < 70
    missing = [{one for one, sight in seen.items() if sight is None} for seen in (first, again)]
    assert len(missing[0] & missing[1]) >= 59, "two looks in a row at the same workers"
