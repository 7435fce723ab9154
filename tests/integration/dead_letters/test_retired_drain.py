"""Emptying queues that are retired, on real servers: what is decided, what is archived, and when it stops."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from dlq_handler.broker.consumer import QueueConsumer, QueueMissing
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.drain import RetiredQueueDrainer
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.queue_emptier import Drained
from dlq_handler.errors import Braked
from sandbox.attune.topology import worker_queue
from sandbox.attune.worker import StockWorker
from tests.integration.topology.broker_side import declare_queue
from tests.integration.workers.conftest import AVAILABILITY, Fleet, Watchpost
from tests.integration.workers.test_drain import SetConsumers, interrupted
from tests.support.eventually import eventually

STOP = asyncio.Event()
PACKS = "worker.7.packs"


def drainer_of(
    post: Watchpost, make: Callable[[str], QueueConsumer[DeadLetter]] | None = None
) -> RetiredQueueDrainer:
    return RetiredQueueDrainer(
        post.database,
        post.leadership,
        post.gate,
        post.ender,
        consumers=SetConsumers(make or post.consumer_of),
        availability=AVAILABILITY,
    )


async def stopped_worker(post: Watchpost, fleet: Fleet, name: str = "stopped") -> StockWorker:
    """It has just stopped in order: its heartbeat is young, its status inactive, its queue without a consumer."""
    worker = await fleet.worker(name)
    await post.sql("UPDATE worker SET status = 'inactive' WHERE id = :id RETURNING id", id=worker.id)
    return worker


async def put(post: Watchpost, queue: str, count: int, message_type: str = "PackRegistered") -> None:
    async with post.admin.channel("publish for a test") as channel:
        for _ in range(count):
            body = {
                "message_id": str(uuid4()),
                "message_type": message_type,
                "timestamp": "2026-11-16T12:00:00Z",
                "payload": {"pack_ref": "core"},
            }
            await channel.basic_publish(json.dumps(body).encode(), exchange="", routing_key=queue)


async def ready(post: Watchpost, queue: str) -> int:
    return (await post.consumer_of(queue).count()).ready


async def test_dispatches_of_a_stopped_worker_are_decided_and_other_messages_archived(
    post: Watchpost, fleet: Fleet
) -> None:
    worker = await stopped_worker(post, fleet)
    dispatched = await fleet.dispatch(worker, 12)
    await put(post, worker_queue(worker.id), 2)

    drained = await drainer_of(post).drain(worker_queue(worker.id), STOP, worker_id=worker.id)

    assert drained == Drained(messages=14)
    assert await fleet.statuses(dispatched) == ["failed"] * 12
    assert await post.ready(worker.id) == 0
    outcomes = [(one.outcome, one.reason, one.queue) for one in await post.letters()]
    queue = worker_queue(worker.id)
    assert sorted(outcomes) == [("archived", "rescued", queue)] * 2 + [("failed", "rescued", queue)] * 12


async def test_queue_of_a_worker_without_a_row_is_emptied(post: Watchpost, fleet: Fleet) -> None:
    worker = await fleet.worker("deleted")
    dispatched = await fleet.dispatch(worker, 3)
    await post.sql("DELETE FROM worker WHERE id = :id RETURNING id", id=worker.id)

    drained = await drainer_of(post).drain(worker_queue(worker.id), STOP, worker_id=worker.id)

    assert drained == Drained(messages=3)
    # The deletion changed the rows: the messages are of an attempt before it, and the monitor ends the executions.
    assert {one.outcome for one in await post.letters()} == {Outcome.STALE_ATTEMPT}
    assert await fleet.statuses(dispatched) == ["scheduled"] * 3


@pytest.mark.parametrize(
    ("worker", "why_not"),
    [
        ({"heartbeat_age_seconds": 0}, "its worker is not known to have stopped"),
        # The link of this test is too young to say that the worker is unavailable.
        ({"heartbeat_age_seconds": 600}, "its worker is not known to have stopped"),
    ],
)
async def test_nothing_is_taken_while_the_worker_may_run(
    post: Watchpost, fleet: Fleet, worker: dict[str, float], why_not: str
) -> None:
    running = await fleet.worker("running", **worker)
    await fleet.dispatch(running, 3)

    drained = await drainer_of(post).drain(worker_queue(running.id), STOP, worker_id=running.id)

    assert drained == Drained(why_not=why_not)
    assert await post.ready(running.id) == 3


async def test_live_consumer_is_never_cut_off(post: Watchpost, fleet: Fleet) -> None:
    worker = await stopped_worker(post, fleet)
    await fleet.dispatch(worker, 25)
    await worker.hang()
    left = await eventually(lambda: post.ready(worker.id))

    drained = await drainer_of(post).drain(worker_queue(worker.id), STOP, worker_id=worker.id)

    assert drained == Drained(why_not="its queue has a consumer")
    assert await post.ready(worker.id) == left


async def test_worker_that_returns_in_the_middle_gets_the_rest(post: Watchpost, fleet: Fleet) -> None:
    worker = await stopped_worker(post, fleet, "returns")
    dispatched = await fleet.dispatch(worker, 25)

    async def register() -> None:
        """As a restart does, before it consumes."""
        await post.sql(
            "UPDATE worker SET status = 'active', last_heartbeat = now() WHERE id = :id RETURNING id",
            id=worker.id,
        )

    drained = await drainer_of(post, interrupted(post, register)).drain(
        worker_queue(worker.id), STOP, worker_id=worker.id
    )

    assert drained == Drained(messages=5, why_not="its worker is not known to have stopped")
    await worker.consume()
    await eventually(lambda: len(worker.ran) == 20)
    statuses = await fleet.statuses(dispatched)
    assert (statuses.count("failed"), statuses.count("completed")) == (5, 20)


class Notes:
    """What the caller receives, and what was on record and in the queue by then."""

    def __init__(self, post: Watchpost) -> None:
        self._post = post
        self.drained: list[Drained] = []
        self.recorded: list[int] = []

    async def note(self, drained: Drained) -> None:
        self.drained.append(drained)
        self.recorded.append(len(await self._post.letters()))


@pytest.mark.parametrize(("records_left", "archived"), [(0, 0), (13, 13), (30, 25), (25, 25)])
async def test_contents_of_a_queue_to_be_archived_are_recorded_up_to_the_limit_and_then_counted(
    post: Watchpost, fleet: Fleet, records_left: int, archived: int
) -> None:
    await declare_queue(post.admin, PACKS)
    await put(post, PACKS, 25)
    notes = Notes(post)

    drained = await drainer_of(post).drain(
        PACKS, STOP, worker_id=None, is_archive=True, records_left=records_left, note=notes.note
    )

    assert drained == Drained(messages=25, archived=archived, beyond_limit=25 - archived)
    assert [one.outcome for one in await post.letters()] == [Outcome.ARCHIVED] * archived
    assert await ready(post, PACKS) == 0
    assert sum(one.archived for one in notes.drained) == archived
    assert sum(one.beyond_limit for one in notes.drained) == 25 - archived


async def test_counts_are_noted_after_the_commit_and_before_the_acknowledgement(
    post: Watchpost, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await declare_queue(post.admin, PACKS)
    await put(post, PACKS, 3)
    notes = Notes(post)

    async def fail(*_: object) -> int:
        raise RuntimeError("killed")

    with monkeypatch.context() as broken:
        broken.setattr(QueueConsumer, "acknowledge", fail)
        with pytest.raises(RuntimeError):
            await drainer_of(post).drain(
                PACKS, STOP, worker_id=None, is_archive=True, records_left=9, note=notes.note
            )
    assert notes.recorded == [len(await post.letters())]
    assert await ready(post, PACKS) == 3, "nothing is lost: all of them return"

    assert (
        await drainer_of(post).drain(PACKS, STOP, worker_id=None, is_archive=True, records_left=9)
    ).messages == 3
    assert len(await post.letters()) == 3, "each is the same record"


async def test_dispatch_in_a_queue_to_be_archived_ends_no_execution(post: Watchpost, fleet: Fleet) -> None:
    worker = await stopped_worker(post, fleet)
    dispatched = await fleet.dispatch(worker, 2)

    drained = await drainer_of(post).drain(
        worker_queue(worker.id), STOP, worker_id=worker.id, is_archive=True, records_left=1
    )

    assert drained == Drained(messages=2, archived=1, beyond_limit=1)
    assert await fleet.statuses(dispatched) == ["scheduled"] * 2


@pytest.mark.parametrize("happens", ["brake", "lease"])
async def test_nothing_is_taken_while_the_brake_holds_or_another_replica_leads(
    post: Watchpost, fleet: Fleet, happens: str
) -> None:
    worker = await stopped_worker(post, fleet)
    await fleet.dispatch(worker, 2)
    drain: Callable[[], Awaitable[Drained]] = lambda: drainer_of(post).drain(  # noqa: E731
        worker_queue(worker.id), STOP, worker_id=worker.id
    )
    if happens == "brake":
        await post.sql(
            "UPDATE own.brake SET tripped_at = now(), hold_until = now() + interval '1 hour', explanation = 'x' "
            "RETURNING 1"
        )
        with pytest.raises(Braked):
            await drain()
    else:
        await post.leadership._give_up()
        assert await drain() == Drained(why_not="another replica is the leader")

    assert await post.letters() == []
    assert await post.ready(worker.id) == 2


async def test_missing_queue_is_named(post: Watchpost, fleet: Fleet) -> None:
    with pytest.raises(QueueMissing, match="no such"):
        await drainer_of(post).drain("no such queue", STOP, worker_id=None)
