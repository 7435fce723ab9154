"""Messages of a worker that is gone are decided like letters; a worker that is there keeps its own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from dlq_handler.broker.consumer import QueueConsumer, QueueMissing
from dlq_handler.broker.delivery import Delivery
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.drain import QueueDrainer
from dlq_handler.dead_letters.intake import DeadLetterConsumers
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.errors import Braked
from dlq_handler.host.worker import WorkerQueueNames
from sandbox.attune.topology import worker_queue
from sandbox.attune.worker import StockWorker
from tests.integration.workers.conftest import Fleet, Watchpost
from tests.support.eventually import eventually

STOP = asyncio.Event()


class SetConsumers(DeadLetterConsumers):
    def __init__(self, make: Callable[[str], QueueConsumer[DeadLetter]]) -> None:
        self._make = make

    def of_queue(self, queue: str, *, priority: int) -> QueueConsumer[DeadLetter]:
        return self._make(queue)


def drainer_of(
    post: Watchpost, make: Callable[[str], QueueConsumer[DeadLetter]] | None = None
) -> QueueDrainer:
    return QueueDrainer(
        post.database,
        post.watch,
        post.leadership,
        post.ender,
        consumers=SetConsumers(make or post.consumer_of),
        names=WorkerQueueNames(),
    )


@pytest.fixture
async def gone(post: Watchpost, fleet: Fleet) -> StockWorker:
    worker = await fleet.worker("gone", heartbeat_age_seconds=600)
    await fleet.dispatch(worker, 25)
    await post.confirm_absences()
    return worker


async def test_messages_of_an_unavailable_worker_are_decided_recorded_and_removed_from_its_queue(
    post: Watchpost, fleet: Fleet
) -> None:
    gone = await fleet.worker("gone", heartbeat_age_seconds=600)
    dispatched = await fleet.dispatch(gone, 25)
    await post.confirm_absences()

    await drainer_of(post).tick(STOP)

    assert await fleet.statuses(dispatched) == ["failed"] * 25
    assert await post.ready(gone.id) == 0
    letters = await post.letters()
    assert {(one.outcome, one.reason, one.queue) for one in letters} == {
        ("failed", "rescued", worker_queue(gone.id))
    }
    assert {one.execution_id for one in letters} == {one.execution_id for one in dispatched}
    assert letters[0].evidence["drained_from"]["worker"] == gone.id
    assert letters[0].evidence["drained_from"]["heartbeat_age_seconds"] >= 600
    assert letters[0].evidence["drained_from"]["other_consumers"] == 0
    assert len(await post.sql("SELECT id FROM own.outbox")) == 25
    [row] = await post.sql("SELECT result FROM execution WHERE id = :id", id=dispatched[0].execution_id)
    assert (row.result["error"], row.result["reason"]) == ("Worker unavailable", "rescued")


async def test_nothing_of_it_goes_through_the_dead_letter_exchange(
    post: Watchpost, fleet: Fleet, gone: StockWorker
) -> None:
    """A nack would be lost here: the stock binding of '#' on a direct exchange lets nothing through."""
    await drainer_of(post).tick(STOP)

    assert len(await post.letters()) == 25


async def test_messages_that_the_rules_leave_alone_are_on_record_too(post: Watchpost, fleet: Fleet) -> None:
    gone = await fleet.worker("gone", heartbeat_age_seconds=600)
    done, again, moved, running, waits = await fleet.dispatch(gone, 5)
    other = await fleet.worker("other")
    for execution_id, change in (
        (done.execution_id, "status = 'completed'"),
        (again.execution_id, "status = 'requested', worker = NULL"),
        (moved.execution_id, f"worker = {other.id}"),
        (running.execution_id, "status = 'running'"),
    ):
        await post.sql(f"UPDATE execution SET {change} WHERE id = :id", id=execution_id)
    await post.confirm_absences()

    await drainer_of(post).tick(STOP)

    assert {one.execution_id: one.outcome for one in await post.letters()} == {
        done.execution_id: Outcome.ALREADY_TERMINAL,
        again.execution_id: Outcome.SUPERSEDED,
        moved.execution_id: Outcome.STALE_ATTEMPT,
        # The link of this test is too young to say that the worker is unavailable.
        running.execution_id: Outcome.LEFT_TO_MONITOR,
        waits.execution_id: Outcome.FAILED,
    }
    assert await post.ready(gone.id) == 0


async def test_nothing_is_taken_while_the_queue_has_a_consumer(
    post: Watchpost, fleet: Fleet, gone: StockWorker
) -> None:
    """It was not there when the watch looked."""
    await gone.hang()
    ready = await eventually(lambda: post.ready(gone.id))

    await drainer_of(post).tick(STOP)

    assert await post.letters() == []
    assert await post.ready(gone.id) == ready


async def test_nothing_is_taken_from_a_worker_that_reported_again(post: Watchpost, gone: StockWorker) -> None:
    await gone.heartbeat(age_seconds=300)

    await drainer_of(post).tick(STOP)

    assert await post.letters() == []
    assert await post.ready(gone.id) == 25


async def test_nothing_is_taken_before_the_absence_is_confirmed(post: Watchpost, fleet: Fleet) -> None:
    worker = await fleet.worker("gone", heartbeat_age_seconds=600)
    await fleet.dispatch(worker, 3)
    await post.watch.tick()

    await drainer_of(post).tick(STOP)

    assert await post.letters() == []


async def test_nothing_is_taken_by_a_replica_that_does_not_lead(
    post: Watchpost, vhost: str, database: str, gone: StockWorker
) -> None:
    other = Watchpost(vhost, database, holder="two")
    try:
        await other.leadership.tick()
        await other.confirm_absences()
        await drainer_of(other).tick(STOP)
    finally:
        await other.close()

    assert await post.letters() == []


async def test_nothing_is_taken_while_the_brake_holds(post: Watchpost, gone: StockWorker) -> None:
    await post.sql(
        "UPDATE own.brake SET tripped_at = now(), hold_until = now() + interval '1 hour', explanation = 'test'"
    )

    with pytest.raises(Braked):
        await drainer_of(post).tick(STOP)

    assert await post.letters() == []
    assert await post.ready(gone.id) == 25


class Interrupted(QueueConsumer[DeadLetter]):
    """Lets something happen before it hands over its second batch."""

    happens: Callable[[], Awaitable[object]]
    batches = 0

    async def next_batch(
        self, stop: asyncio.Event | None = None, timeout_seconds: float | None = None
    ) -> list[Delivery[DeadLetter]]:
        batch = await super().next_batch(stop, timeout_seconds)
        self.batches += 1
        if self.batches == 2:
            await self.happens()
        return batch


def interrupted(
    post: Watchpost, happens: Callable[[], Awaitable[object]]
) -> Callable[[str], QueueConsumer[DeadLetter]]:
    def make(queue: str) -> QueueConsumer[DeadLetter]:
        source = post.consumer_of(queue, batch_size=5)
        source.__class__ = Interrupted
        assert isinstance(source, Interrupted)
        source.happens = happens
        return source

    return make


async def test_worker_that_comes_back_in_the_middle_gets_the_rest(post: Watchpost, fleet: Fleet) -> None:
    worker = await fleet.worker("back-in-time", heartbeat_age_seconds=600)
    dispatched = await fleet.dispatch(worker, 25)
    await post.confirm_absences()

    async def come_back() -> None:
        """As a restart does: it registers, and then consumes."""
        await worker.heartbeat()
        await worker.consume()

    with capture_logs() as logs:
        await drainer_of(post, interrupted(post, come_back)).tick(STOP)

    assert [one["explanation"] for one in logs if one["event"] == "drain.ended"] == [
        "it has sent a heartbeat"
    ]
    await eventually(lambda: len(worker.ran) == 20)
    statuses = await fleet.statuses(dispatched)
    assert (statuses.count("failed"), statuses.count("completed")) == (5, 20)


async def test_consumer_that_appears_in_the_middle_ends_it(post: Watchpost, fleet: Fleet) -> None:
    """Any consumer: it may be a worker that has not reported yet."""
    worker = await fleet.worker("consumes-first", heartbeat_age_seconds=600)
    dispatched = await fleet.dispatch(worker, 25)
    await post.confirm_absences()

    with capture_logs() as logs:
        await drainer_of(post, interrupted(post, worker.consume)).tick(STOP)

    assert [one["explanation"] for one in logs if one["event"] == "drain.ended"] == [
        "its queue has a consumer"
    ]
    await eventually(lambda: len(worker.ran) == 20)
    statuses = await fleet.statuses(dispatched)
    assert (statuses.count("failed"), statuses.count("completed")) == (5, 20)


async def test_message_whose_acknowledgement_was_lost_is_the_same_letter(
    post: Watchpost, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = await fleet.worker("gone", heartbeat_age_seconds=600)
    await fleet.dispatch(gone, 5)
    await post.confirm_absences()

    async def lose(*_: Any) -> int:
        return 0

    with monkeypatch.context() as broken:
        broken.setattr(QueueConsumer, "acknowledge", lose)
        await drainer_of(post).tick(STOP)
    assert await post.ready(gone.id) == 5

    await drainer_of(post).tick(STOP)

    assert await post.ready(gone.id) == 0
    assert [one.repeats for one in await post.letters()] == [1] * 5
    assert len(await post.sql("SELECT id FROM own.outbox")) == 5


async def test_execution_that_is_locked_keeps_its_message(post: Watchpost, fleet: Fleet) -> None:
    gone = await fleet.worker("gone", heartbeat_age_seconds=600)
    dispatched = await fleet.dispatch(gone, 5)
    await post.confirm_absences()

    async with fleet.executor.database.transaction() as session:
        await session.execute("SELECT FROM execution WHERE id = $1 FOR UPDATE", dispatched[0].execution_id)
        await drainer_of(post).tick(STOP)

    assert await post.ready(gone.id) == 1
    assert len(await post.letters()) == 4
    await drainer_of(post).tick(STOP)
    assert await fleet.statuses(dispatched) == ["failed"] * 5


async def test_missing_queue_keeps_no_other_worker_waiting(
    post: Watchpost, fleet: Fleet, gone: StockWorker
) -> None:
    second = await fleet.worker("gone-too", heartbeat_age_seconds=600)
    dispatched = await fleet.dispatch(second, 3)
    await post.confirm_absences()

    def make(queue: str) -> QueueConsumer[DeadLetter]:
        return post.consumer_of("worker.999999.executions" if queue == worker_queue(gone.id) else queue)

    with pytest.raises(QueueMissing):
        await drainer_of(post, make).tick(STOP)

    assert await fleet.statuses(dispatched) == ["failed"] * 3
