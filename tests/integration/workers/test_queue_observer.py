"""What the broker says of workers' queues, put together from AMQP and the management API, and never guessed."""

from collections.abc import AsyncIterator, Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

from dlq_handler.broker.admin import queue_probe
from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi, QueueStatistics
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.errors import Unavailable
from dlq_handler.host.worker import QueueObservation, WorkerQueueNames
from dlq_handler.workers import queue_observer
from dlq_handler.workers.queue_observer import WorkerQueueObserver
from sandbox.attune.topology import verify_redeclare, worker_queue
from sandbox.servers import RabbitMQ
from tests.support.eventually import eventually
from tests.support.tcp_proxy import TcpProxy


class Fixture:
    """A stock worker 1 whose queue is there, and a worker 2 without one."""

    def __init__(self, proxy: TcpProxy, api: ManagementApi, channel: aio_pika.abc.AbstractChannel) -> None:
        self.proxy, self.channel = proxy, channel
        self.api = api
        self.statistics: Mapping[str, QueueStatistics] | None = None
        """What the management API says; None = it is missing."""
        self.api_asked = 0
        self.clock = 0.0
        self.admin = AdminConnection(BrokerAddress(urls=[proxy.url]))
        self.queue_observer = WorkerQueueObserver(
            self.admin,
            api=cast("Any", self),
            names=WorkerQueueNames(),
            now=lambda: self.clock,
        )

    async def queue_statistics(
        self, queues: Collection[str], *, within_seconds: float
    ) -> Mapping[str, QueueStatistics]:
        self.api_asked += 1
        if self.statistics is None:
            raise Unavailable("management API", "connection refused")
        return {queue: self.statistics[queue] for queue in queues if queue in self.statistics}

    async def queue_arguments(self) -> Mapping[str, Mapping[str, object]]:
        self.api_asked += 1
        if self.statistics is None:
            raise Unavailable("management API", "connection refused")
        return {
            queue: {} if statistics.ttl_ms is None else {"x-message-ttl": statistics.ttl_ms}
            for queue, statistics in self.statistics.items()
        }

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
        await fixture.admin.close()


async def test_queue_is_seen_and_a_missing_one_is_none(it: Fixture) -> None:
    await it.dispatch(3)

    seen = await it.queue_observer.observe([1, 2])

    assert seen == {1: QueueObservation(consumers=0, ready=3, unacked=None, ttl_ms=60_000), 2: None}
    assert it.queue_observer.broker_error is None
    assert it.queue_observer.api_error


async def test_the_real_management_api_shows_what_consumers_hold(it: Fixture) -> None:
    await it.hold()
    await it.dispatch(2)

    async def is_listed() -> bool:
        statistics = (await it.api.queue_statistics([worker_queue(1)], within_seconds=5)).get(worker_queue(1))
        return statistics == QueueStatistics(ready=0, unacked=2, ttl_ms=60_000)

    await eventually(is_listed, timeout=60, every=0.5)
    it.statistics = await it.api.queue_statistics([worker_queue(1)], within_seconds=5)

    assert await it.queue_observer.observe([1]) == {
        1: QueueObservation(consumers=1, ready=0, unacked=2, ttl_ms=60_000)
    }


async def test_message_on_its_way_from_ready_to_unacked_is_not_overlooked(it: Fixture) -> None:
    """By AMQP it is not ready any more; by the older statistics it is not unacked yet."""
    it.statistics = {worker_queue(1): QueueStatistics(ready=1, unacked=0, ttl_ms=60_000)}

    seen = (await it.queue_observer.observe([1]))[1]

    assert seen is not None
    assert (seen.ready, seen.unacked) == (1, 0)


async def test_counts_are_kept_for_a_moment_only(it: Fixture) -> None:
    assert await it.queue_observer.count([1]) == {1: QueueCounts(ready=0, consumers=0)}
    await it.dispatch()
    assert await it.queue_observer.count([1]) == {1: QueueCounts(ready=0, consumers=0)}

    it.pass_seconds(3)

    assert await it.queue_observer.count([1, 2]) == {1: QueueCounts(ready=1, consumers=0), 2: None}


async def test_ttl_is_probed_once_and_again_after_minutes(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed: list[str] = []

    async def count_probes(_: AdminConnection, queues: Mapping[str, int]) -> dict[str, int | None]:
        probed.extend(queues)
        return dict.fromkeys(queues, 60_000)

    monkeypatch.setattr("dlq_handler.workers.queue_observer.queue_probe.probe_all_ttl_ms", count_probes)
    for _ in range(3):
        await it.queue_observer.observe([1, 2])
        it.pass_seconds(10)
    assert probed == [worker_queue(1)]

    it.pass_seconds(600)
    await it.queue_observer.observe([1])
    assert probed == [worker_queue(1)] * 2


async def test_look_that_decides_nothing_probes_no_ttl_and_uses_what_is_known(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ttl(sights: Mapping[int, QueueObservation | None]) -> int | None:
        assert sights[1] is not None
        return sights[1].ttl_ms

    with monkeypatch.context() as patched:
        patched.delattr("dlq_handler.workers.queue_observer.queue_probe.probe_all_ttl_ms")
        assert ttl(await it.queue_observer.observe_quietly([1])) is None
    assert ttl(await it.queue_observer.observe([1])) == 60_000
    it.pass_seconds(3)
    assert ttl(await it.queue_observer.observe_quietly([1])) == 60_000


async def test_a_ttl_from_the_api_saves_the_probe(it: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    it.statistics = {worker_queue(1): QueueStatistics(ready=0, unacked=0, ttl_ms=77)}

    async def no_probe(_: AdminConnection, queues: Mapping[str, int]) -> dict[str, int | None]:
        assert not queues
        return {}

    monkeypatch.setattr("dlq_handler.workers.queue_observer.queue_probe.probe_all_ttl_ms", no_probe)

    seen = (await it.queue_observer.observe([1]))[1]

    assert seen is not None
    assert seen.ttl_ms == 77


async def test_missing_api_is_left_in_peace_for_a_while(it: Fixture) -> None:
    for _ in range(5):
        await it.queue_observer.observe([1])
        it.pass_seconds(5)
    assert it.api_asked == 1

    it.pass_seconds(60)
    it.statistics = {worker_queue(1): QueueStatistics(ready=0, unacked=4, ttl_ms=None)}
    seen = (await it.queue_observer.observe([1]))[1]
    assert seen is not None
    assert seen.unacked == 4
    assert it.queue_observer.api_error is None


async def test_broker_that_is_away_leaves_workers_out_and_comes_back(it: Fixture) -> None:
    await it.queue_observer.observe([1, 2])
    it.pass_seconds(5)
    await it.proxy.refuse()

    assert await it.queue_observer.observe([1, 2]) == {}
    assert it.queue_observer.broker_error

    await it.proxy.heal()
    it.pass_seconds(40)
    assert set(await it.queue_observer.observe([1, 2])) == {1, 2}
    assert it.queue_observer.broker_error is None


async def test_queue_without_a_ttl_is_not_one_with_an_unknown_ttl(it: Fixture) -> None:
    await it.channel.declare_queue(worker_queue(3), durable=True)

    by_probe = await it.queue_observer.observe([3])
    it.pass_seconds(61)
    it.statistics = {worker_queue(3): QueueStatistics(ready=0, unacked=0, ttl_ms=None)}
    by_api = await it.queue_observer.observe([3])

    for seen in (by_probe[3], by_api[3]):
        assert seen is not None
        assert (seen.ttl_ms, seen.has_no_ttl) == (None, True)


async def test_ttl_without_an_answer_is_unknown(it: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(_: AdminConnection, _queues: Mapping[str, int]) -> dict[str, int | None]:
        return {}

    monkeypatch.setattr("dlq_handler.workers.queue_observer.queue_probe.probe_all_ttl_ms", refused)

    seen = (await it.queue_observer.observe([1]))[1]

    assert seen is not None
    assert (seen.ttl_ms, seen.has_no_ttl) == (None, False)


async def test_a_process_that_has_seen_no_ttl_probes_one_queue_that_exists(
    it: Fixture, vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await verify_redeclare(vhost, {3: 90_000})
    probed: list[str] = []
    probe = queue_probe.probe_all_ttl_ms

    async def counting(link: AdminConnection, queues: Collection[str]) -> dict[str, int | None]:
        probed.extend(queues)
        return await probe(link, queues)

    monkeypatch.setattr(queue_probe, "probe_all_ttl_ms", counting)
    assert await it.queue_observer.longest_ttl_ms() is None, "no worker was named"
    assert await it.queue_observer.longest_ttl_ms([2]) is None, "its queue does not exist"
    assert probed == []

    assert await it.queue_observer.longest_ttl_ms([2, 3, 1]) == 90_000
    assert await it.queue_observer.longest_ttl_ms([2, 3, 1]) == 90_000
    assert probed == [worker_queue(3)]


async def test_a_ttl_that_the_broker_does_not_say_leaves_the_longest_one_unknown(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(_: AdminConnection, _queues: Collection[str]) -> dict[str, int | None]:
        return {}

    with monkeypatch.context() as patched:
        patched.setattr(queue_probe, "probe_all_ttl_ms", refused)
        assert await it.queue_observer.longest_ttl_ms([1]) is None
    it.pass_seconds(600)
    assert await it.queue_observer.longest_ttl_ms([1]) == 60_000


async def test_without_any_worker_queue_the_api_says_that_none_has_a_ttl(it: Fixture) -> None:
    it.statistics = {"another.queue": QueueStatistics(ready=0, unacked=0, ttl_ms=10**9)}
    assert await it.queue_observer.longest_ttl_ms() == 0


async def test_longest_ttl_is_that_of_all_worker_queues_ever_seen(it: Fixture) -> None:
    assert await it.queue_observer.longest_ttl_ms() is None
    await it.queue_observer.observe([1])
    assert await it.queue_observer.longest_ttl_ms() == 60_000

    it.pass_seconds(61)
    it.statistics = {
        worker_queue(1): QueueStatistics(ready=0, unacked=0, ttl_ms=10),
        worker_queue(7): QueueStatistics(ready=0, unacked=0, ttl_ms=90_000),
        "another.queue": QueueStatistics(ready=0, unacked=0, ttl_ms=10**9),
    }
    assert await it.queue_observer.longest_ttl_ms() == 90_000

    it.pass_seconds(61)
    it.statistics = {}
    assert await it.queue_observer.longest_ttl_ms() == 90_000, "a message may be older than its queue"


class Refusals:
    """Counts the questions about missing queues that reach the real broker."""

    def __init__(self, it: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: dict[str, list[float]] = {}
        ask = queue_probe.count_until_refused

        async def counting(
            link: AdminConnection, queues: Collection[str], *, refusals: int
        ) -> tuple[dict[str, QueueCounts | None], list[str]]:
            counted, left = await ask(link, queues, refusals=refusals)
            for queue, counts in counted.items():
                if counts is None:
                    self.at.setdefault(queue, []).append(it.clock)
            return counted, left

        monkeypatch.setattr(queue_probe, "count_until_refused", counting)

    @property
    def total(self) -> int:
        return sum(map(len, self.at.values()))


async def test_a_missing_queue_is_asked_about_twice_in_ten_minutes_and_then_unknown(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals, answers = Refusals(it, monkeypatch), []
    for _ in range(60):
        answers.append(await it.queue_observer.observe([1, 2]))
        it.pass_seconds(10)

    assert refusals.at == {worker_queue(2): [0.0, 40.0]}
    assert [place for place, seen in enumerate(answers) if 2 in seen] == [0, 4]
    assert all(seen[1] is not None for seen in answers), "a queue that exists is known all the time"

    for _ in range(6):
        await it.queue_observer.observe([1, 2])
        it.pass_seconds(10)
    assert refusals.at == {worker_queue(2): [0.0, 40.0, 600.0, 640.0]}


async def test_a_queue_that_is_declared_after_two_refusals_is_found_without_another_one(
    it: Fixture, vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: set[str] = set()
    refusals = Refusals(it, monkeypatch)

    async def listed() -> set[str]:
        return known

    link = AdminConnection(BrokerAddress(urls=[it.proxy.url]))
    queue_observer = WorkerQueueObserver(
        link,
        api=cast("Any", it),
        names=WorkerQueueNames(),
        queues=QueueCounter(link, api=cast("Any", SimpleNamespace(queue_names=listed)), now=lambda: it.clock),
        now=lambda: it.clock,
    )
    for _ in range(6):
        await queue_observer.observe([2])
        it.pass_seconds(10)
    assert await queue_observer.observe([2]) == {2: None}, "the management API lists all queues"
    assert len(refusals.at[worker_queue(2)]) == 2

    await verify_redeclare(vhost, {2: 60_000})
    known.add(worker_queue(2))
    it.pass_seconds(10)
    assert (await queue_observer.observe([2]))[2] is not None
    await link.close()


async def test_probes_and_missing_queues_share_one_limit_per_minute(
    it: Fixture, vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four places are kept for queues that were found before and may have been deleted."""
    workers = range(1, 41)
    await verify_redeclare(vhost, dict.fromkeys(workers, 60_000))
    refusals = Refusals(it, monkeypatch)

    def unprobed(seen: Mapping[int, QueueObservation | None]) -> list[int]:
        return [
            one
            for one, queue_observer in seen.items()
            if queue_observer is not None and queue_observer.ttl_ms is None
        ]

    seen = await it.queue_observer.observe([*workers, *range(100, 130)])
    assert refusals.total == 30
    assert len(unprobed(seen)) == 40 - (60 - 4 - 30)
    assert not any(
        queue_observer.has_no_ttl for queue_observer in seen.values() if queue_observer is not None
    )

    it.pass_seconds(30)
    assert len(unprobed(await it.queue_observer.observe(workers))) == 14

    it.pass_seconds(30)
    assert unprobed(await it.queue_observer.observe(workers)) == []


async def test_more_missing_queues_than_the_limit_are_asked_about_in_pairs_of_looks(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = Refusals(it, monkeypatch)
    for elapsed in range(0, 360, 10):
        seen = await it.queue_observer.observe([1, *range(100, 200)])
        assert elapsed == 0 or seen[1] is not None, "missing queues do not hide one that exists"
        it.pass_seconds(10)

    for begin in range(0, 360, 10):
        asked = [at for times in refusals.at.values() for at in times if begin <= at < begin + 60]
        assert len(asked) <= 60
    assert len(refusals.at) == 100
    for first, second in refusals.at.values():
        assert 30 <= second - first <= 120


async def test_the_view_of_a_large_fleet_takes_the_last_count_and_a_decision_does_not(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_observer, "MOST_WITH_STATISTICS", 1)
    assert await it.queue_observer.count([1, 2]) == {1: QueueCounts(ready=0, consumers=0), 2: None}
    await it.dispatch(3)
    it.pass_seconds(queue_observer.COUNTS_KEPT_SECONDS + 1)

    for_view = await it.queue_observer.observe_fleet([1, 2])
    for_decision = await it.queue_observer.observe([1, 2])
    it.pass_seconds(queue_observer.FLEET_COUNTS_KEPT_SECONDS)
    later = await it.queue_observer.observe_fleet([1, 2])

    ready = [seen[1].ready for seen in (for_view, for_decision, later) if seen[1] is not None]
    assert ready == [0, 3, 3]
