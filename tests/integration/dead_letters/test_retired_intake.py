"""The retired queue on real servers: who may still receive a message of it, and what becomes of it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.consumer import QueueConsumer, QueueMissing
from dlq_handler.dead_letters.intake import RETIRED_PART, DeadLetterConsumers, DeadLetterIntake
from dlq_handler.dead_letters.letter import DeadLetter, DrainedFrom
from dlq_handler.dead_letters.options import BatchOptions, IntakeOptions, PauseOptions
from dlq_handler.dead_letters.rescued import as_drained
from dlq_handler.dead_letters.retired import OwnQueueCheck, RetiredQueueWatch, declare_retired_queue
from dlq_handler.endings.writers import RecordsWriter
from dlq_handler.errors import Braked, Unavailable
from dlq_handler.health import Readiness
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.safety.gate_service import Gate
from dlq_handler.topology.blueprint import RETIRED_QUEUE
from dlq_handler.topology.canary import CANARY_MESSAGE_TYPE
from sandbox.attune.topology import worker_queue
from sandbox.attune.worker import StockWorker
from tests.integration.topology.broker_side import declare_queue, delete_queue
from tests.integration.workers.conftest import Fleet, Watchpost

NAMES = WorkerQueueNames()
STOP = asyncio.Event()


class WatchedLong(Gate):
    """Heartbeats were read for an hour: an old one proves that its worker is unavailable."""

    @property
    def watched_seconds(self) -> float:
        return 3600.0


class RetiredSide:
    """The second intake of one replica, ticked by hand."""

    def __init__(self, post: Watchpost, amqp_url: str) -> None:
        self.post, self.readiness, self.writer = post, Readiness(), RecordsWriter()
        post.gate.__class__ = WatchedLong
        self.source: QueueConsumer[DeadLetter] = DeadLetterConsumers(
            BrokerAddress(urls=[amqp_url]),
            post.admin,
            IntakeOptions(),
            BatchOptions(size=10, wait_ms=50),
            prefetch=20,
            tag="dlq-handler.retired",
        ).of_retired_queue(NAMES)
        self.watch = RetiredQueueWatch(post.admin, self.source, self.writer)
        self.intake = DeadLetterIntake(
            self.source,
            post.ender,
            self.watch,
            None,
            PauseOptions(),
            readiness=self.readiness,
            metrics=post.metrics,
            check=OwnQueueCheck(post.admin, NAMES),
            batches_at_once=1,
        )

    async def bind(self, routing_key: str) -> None:
        async with self.post.admin.channel("bind for a test") as channel:
            await channel.queue_bind(RETIRED_QUEUE, "attune.executions", routing_key)

    async def publish(self, body: bytes, *, routing_key: str) -> None:
        await self.bind(routing_key)
        async with self.post.admin.channel("publish for a test") as channel:
            await channel.basic_publish(body, exchange="attune.executions", routing_key=routing_key)

    async def receive(self, count: int) -> list[tuple[str, str]]:
        """Process batches until this many messages are on record. Outcome and queue of each."""
        while len(letters := await self.post.letters()) < count:
            await self.intake.tick(STOP)
        return [(one.outcome, one.queue) for one in letters]

    async def ready(self) -> int:
        return (await self.source.count()).ready


@pytest.fixture
async def retired(post: Watchpost, vhost: str, fleet: Fleet) -> AsyncIterator[RetiredSide]:
    side = RetiredSide(post, vhost)
    await declare_retired_queue(post.admin)
    yield side
    await side.source.close()


@pytest.fixture
async def gone(retired: RetiredSide, fleet: Fleet) -> StockWorker:
    """Its own queue is still there, and its key leads to the retired queue as well."""
    worker = await fleet.worker("gone", heartbeat_age_seconds=600)
    await retired.bind(NAMES.routing_key(worker.id))
    return worker


async def test_dispatches_to_a_worker_whose_queue_is_deleted_fail_their_executions(
    retired: RetiredSide, fleet: Fleet, gone: StockWorker
) -> None:
    await delete_queue(retired.post.admin, worker_queue(gone.id))
    dispatched = await fleet.dispatch(gone, 12)

    assert await retired.receive(12) == [("failed", RETIRED_QUEUE)] * 12

    assert await fleet.statuses(dispatched) == ["failed"] * 12
    assert len(await retired.post.sql("SELECT id FROM own.outbox")) == 12
    [first, *_] = await retired.post.letters()
    assert (first.reason, first.worker_id) == ("rescued", gone.id)
    assert first.evidence["retired"]["has_own_queue"] is False
    assert first.evidence["retired"]["heartbeat_age_seconds"][str(gone.id)] >= 600
    await retired.source.close()
    assert await retired.ready() == 0, "each is acknowledged"


async def test_dispatch_whose_worker_has_a_queue_again_is_left_to_the_monitor(
    retired: RetiredSide, fleet: Fleet, gone: StockWorker
) -> None:
    """Its new queue may hold the same dispatch, and it may install environments for minutes before a heartbeat."""
    dispatched = await fleet.dispatch(gone, 2)

    assert await retired.receive(2) == [("left_to_monitor", RETIRED_QUEUE)] * 2

    assert await fleet.statuses(dispatched) == ["scheduled"] * 2
    assert await retired.post.ready(gone.id) == 2


async def test_dispatch_whose_worker_sends_heartbeats_is_left_to_the_monitor(
    retired: RetiredSide, fleet: Fleet, gone: StockWorker
) -> None:
    await delete_queue(retired.post.admin, worker_queue(gone.id))
    dispatched = await fleet.dispatch(gone, 1)
    await gone.heartbeat()

    assert await retired.receive(1) == [("left_to_monitor", RETIRED_QUEUE)]

    assert await fleet.statuses(dispatched) == ["scheduled"]


async def test_copy_of_a_drained_dispatch_finds_its_execution_terminal(
    retired: RetiredSide, fleet: Fleet, gone: StockWorker
) -> None:
    """While both queues are bound, each message is in both."""
    post = retired.post
    dispatched = await fleet.dispatch(gone, 3)
    own = post.consumer_of(worker_queue(gone.id))
    await own.open()
    taken = await own.next_batch()
    while len(taken) < 3:
        taken += await own.next_batch()
    where = DrainedFrom(worker_id=gone.id, heartbeat_age_seconds=600, other_consumers=0)
    await post.ender.commit(
        [as_drained(one.item, where, queue=own.queue, now=dispatched[0].scheduled_at) for one in taken]
    )
    await own.acknowledge(taken)
    await own.close()
    await delete_queue(post.admin, own.queue)

    recorded = await retired.receive(6)

    assert recorded == [("failed", own.queue)] * 3 + [("already_terminal", RETIRED_QUEUE)] * 3
    assert len(await post.sql("SELECT id FROM own.outbox")) == 3, "one completion event each"


async def test_other_messages_are_archived_also_those_that_look_like_a_canary(
    retired: RetiredSide, gone: StockWorker
) -> None:
    await retired.publish(
        b'{"message_type": "ExecutionCancelRequested", "timestamp": "2026-11-16T12:00:00Z",'
        b' "payload": {"execution_id": 1, "worker_id": 7}}',
        routing_key="execution.cancel.worker.7",
    )
    await retired.publish(
        f'{{"message_type": "{CANARY_MESSAGE_TYPE}", "payload": {{}}}}'.encode(), routing_key="other"
    )

    assert await retired.receive(2) == [("archived", RETIRED_QUEUE)] * 2


async def test_content_that_cannot_be_read_delays_no_message_behind_it(
    retired: RetiredSide, fleet: Fleet, gone: StockWorker
) -> None:
    await delete_queue(retired.post.admin, worker_queue(gone.id))
    await retired.publish(b"\xff\x00", routing_key=NAMES.routing_key(gone.id))
    await fleet.dispatch(gone, 1)

    assert await retired.receive(2) == [("unreadable", RETIRED_QUEUE), ("failed", RETIRED_QUEUE)]


async def test_message_whose_acknowledgement_was_lost_is_the_same_record(
    retired: RetiredSide, fleet: Fleet, gone: StockWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await delete_queue(retired.post.admin, worker_queue(gone.id))
    await fleet.dispatch(gone, 2)

    async def lose(*_: object) -> int:
        return 0

    with monkeypatch.context() as broken:
        broken.setattr(QueueConsumer, "acknowledge", lose)
        await retired.receive(2)
    await retired.source.close()
    assert await retired.ready() == 2

    while sum(one.repeats for one in await retired.post.letters()) < 2:
        await retired.intake.tick(STOP)
    await retired.source.close()
    assert await retired.ready() == 0
    assert len(await retired.post.sql("SELECT id FROM own.outbox")) == 2


async def test_it_reports_a_part_of_its_own_and_is_not_counted_as_the_intake(
    retired: RetiredSide, fleet: Fleet, gone: StockWorker
) -> None:
    before = retired.readiness.checks["consumer"]
    await retired.intake.tick(STOP)

    assert retired.readiness.checks["consumer"] == before
    assert retired.readiness.checks[RETIRED_PART].ok
    await retired.intake._close("stopped")
    assert not retired.readiness.checks[RETIRED_PART].ok
    assert "dlq_handler_intake_opened_total 0.0" in retired.post.metrics.exposition().decode()


async def test_missing_queue_is_declared_and_then_consumed(post: Watchpost, vhost: str, fleet: Fleet) -> None:
    side = RetiredSide(post, vhost)
    with pytest.raises(QueueMissing):
        await side.intake.tick(STOP)

    await side.watch.tick()
    await side.intake.tick(STOP)

    assert side.source.is_consuming
    assert side.watch.waiting == 0
    # Durable and without arguments: the same declaration is accepted, as the one of a stop.
    await declare_queue(post.admin, RETIRED_QUEUE)
    await side.source.close()


async def test_consumer_that_the_broker_does_not_know_is_opened_again(
    retired: RetiredSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    await retired.intake.tick(STOP)
    await retired.watch.tick()
    assert retired.source.is_consuming

    # Another replica deletes and declares the queue: this client hears of it, or only the watch sees it.
    await delete_queue(retired.post.admin, RETIRED_QUEUE)
    await declare_retired_queue(retired.post.admin)
    await retired.watch.tick()

    assert not retired.source.is_consuming


async def test_nothing_is_held_while_the_brake_holds(
    post: Watchpost, vhost: str, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def braked() -> None:
        raise Braked("too many")

    side = RetiredSide(post, vhost)
    monkeypatch.setattr(side.writer, "check", braked)
    await declare_retired_queue(post.admin)
    await side.intake.tick(STOP)

    await side.watch.tick()

    assert not side.source.is_consuming
    await side.source.close()


async def test_nothing_is_decided_while_the_broker_does_not_say_whether_the_queue_exists(
    retired: RetiredSide, fleet: Fleet, gone: StockWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await delete_queue(retired.post.admin, worker_queue(gone.id))
    dispatched = await fleet.dispatch(gone, 1)

    async def no_answer(*_: object) -> object:
        raise Unavailable("broker", "no answer")

    retired.intake._pauses = PauseOptions(database_outage_seconds=1)
    with monkeypatch.context() as broken:
        broken.setattr("dlq_handler.dead_letters.retired.count_all", no_answer)
        await retired.intake.tick(STOP)
        with pytest.raises(Unavailable, match=r"^broker: letters go back"):
            await retired.intake.tick(STOP)

    assert await retired.post.letters() == []
    assert await fleet.statuses(dispatched) == ["scheduled"]
    await retired.source.close()
    assert await retired.ready() == 1
