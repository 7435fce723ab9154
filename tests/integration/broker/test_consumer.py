"""Batches, acknowledging, postponing, closing: the consumer on a broker without faults."""

import asyncio
from functools import partial

import pytest

from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.broker.consumer import QueueMissing
from dlq_handler.dead_letters.parse import read_dead_letter
from dlq_handler.errors import Unavailable
from tests.integration.broker.conftest import SourceFactory
from tests.integration.broker.letterbox import Letterbox, execution_ids
from tests.support.eventually import eventually

FOR_EVER = 3600.0


@pytest.mark.parametrize(
    ("batch_size", "wait_seconds", "expected"),
    [(2, FOR_EVER, [1, 2]), (100, 0.2, [1, 2, 3])],
    ids=["full at its size", "not full: a short wait"],
)
async def test_a_batch_ends(
    letterbox: Letterbox,
    a_source: SourceFactory,
    batch_size: int,
    wait_seconds: float,
    expected: list[int],
) -> None:
    await letterbox.put(1, 2, 3)
    source = a_source(batch_size=batch_size, batch_wait_seconds=wait_seconds)
    await source.open()

    assert execution_ids(await source.next_batch(timeout_seconds=20)) == expected


async def test_a_full_window_is_given_at_once_since_no_more_can_come(
    letterbox: Letterbox, a_source: SourceFactory
) -> None:
    await letterbox.put(1, 2, 3, 4, 5)
    source = a_source(prefetch=3, batch_size=100, batch_wait_seconds=FOR_EVER)
    await source.open()

    batch = await source.next_batch(timeout_seconds=20)
    assert execution_ids(batch) == [1, 2, 3]

    await source.acknowledge(batch[:1])
    await source.acknowledge(batch[1:])
    await letterbox.put(6)
    assert execution_ids(await source.next_batch(timeout_seconds=20)) == [4, 5, 6]


async def test_it_is_drained_when_what_was_ready_at_the_opening_is_acknowledged(
    letterbox: Letterbox, a_source: SourceFactory
) -> None:
    await letterbox.put(1, 2, 3)
    source = a_source(batch_size=3, batch_wait_seconds=FOR_EVER)

    def is_drained() -> bool:
        return source.drain.undrained_seconds is None

    await source.open()
    assert not is_drained()
    batch = await source.next_batch(timeout_seconds=20)
    await source.acknowledge(batch[:2])
    await source.count()
    assert not is_drained(), "one is taken, and not acknowledged"
    await source.acknowledge(batch[2:])
    assert is_drained()

    await source.close()
    assert not is_drained()
    await source.open()
    assert is_drained(), "nothing waits"


async def test_a_letter_is_read_as_it_arrives(letterbox: Letterbox, a_source: SourceFactory) -> None:
    await letterbox.put(1)
    source = a_source(read=partial(read_dead_letter, body_limit_bytes=10))
    await source.open()

    (delivery,) = await source.next_batch(timeout_seconds=20)

    letter = delivery.item
    assert (letter.execution_id, letter.worker_id, letter.message_id) == (1, 7, "m1")
    assert (letter.reason, letter.queue) == ("expired", "worker.7.executions")
    assert len(letter.body) == 10
    assert letter.body_size > 10


async def test_without_letters_the_wait_ends_in_time_or_by_a_stop(
    letterbox: Letterbox, a_source: SourceFactory
) -> None:
    source = a_source()
    await source.open()

    assert await source.next_batch(timeout_seconds=0.05) == []
    stop = asyncio.Event()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(source.next_batch(stop))
        await asyncio.sleep(0)  # it waits
        stop.set()
    assert waiting.result() == []


async def test_acknowledged_letters_are_removed_and_the_others_are_redelivered(
    letterbox: Letterbox, a_source: SourceFactory
) -> None:
    await letterbox.put(1, 2, 3, 4, 5)
    source = a_source(prefetch=5, batch_wait_seconds=1)
    await source.open()
    batch = await source.next_batch(timeout_seconds=20)

    assert await source.acknowledge([batch[0], batch[1], batch[3]]) == 3
    assert await source.acknowledge([batch[0]]) == 0, "acknowledged before"
    await source.close()

    await eventually(lambda: _is_ready(letterbox, 2))
    await source.open()
    again = await source.next_batch(timeout_seconds=20)
    assert execution_ids(again) == [3, 5]
    assert all(delivery.item.redelivered for delivery in again)
    assert [one.item.key for one in again] == [batch[2].item.key, batch[4].item.key]


async def test_what_an_earlier_channel_delivered_cannot_be_acknowledged(
    letterbox: Letterbox, a_source: SourceFactory
) -> None:
    await letterbox.put(1, 2)
    source = a_source(batch_size=2, batch_wait_seconds=FOR_EVER)
    await source.open()
    old = await source.next_batch(timeout_seconds=20)
    await source.close()
    assert await source.acknowledge(old) == 0, "closed"

    await source.open()
    new = await source.next_batch(timeout_seconds=20)

    assert [delivery.tag for delivery in old] == [delivery.tag for delivery in new]
    assert await source.acknowledge(old) == 0
    source.postpone(old, 0.0)
    assert await source.next_batch(timeout_seconds=0.05) == []
    await source.close()
    await eventually(lambda: _is_ready(letterbox, 2))


async def test_postponed_letters_are_returned_again_in_order_and_stay_unacknowledged(
    letterbox: Letterbox, a_source: SourceFactory
) -> None:
    await letterbox.put(1, 2, 3)
    source = a_source(batch_size=3, batch_wait_seconds=0.05)
    await source.open()
    one, two, three = await source.next_batch(timeout_seconds=20)

    source.postpone([three, one], 0.1)
    await source.acknowledge([two])

    again = await source.next_batch(timeout_seconds=20)
    assert execution_ids(again) == [1, 3]
    assert source.outstanding == 2


async def test_a_postponed_letter_wakes_a_waiting_call(letterbox: Letterbox, a_source: SourceFactory) -> None:
    await letterbox.put(1)
    source = a_source(batch_size=1)
    await source.open()
    held = await source.next_batch(timeout_seconds=20)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        other_batch = group.create_task(source.next_batch())
        await asyncio.sleep(0)  # it waits, and no letter will ever arrive
        source.postpone(held, 0.01)

    assert execution_ids(other_batch.result()) == [1]


async def test_a_missing_queue_is_said_by_name_and_found_later(
    letterbox: Letterbox, a_source: SourceFactory
) -> None:
    source = a_source(queue="elsewhere")

    with pytest.raises(QueueMissing, match="'elsewhere'"):
        await source.open()
    with pytest.raises(QueueMissing, match="'elsewhere'"):
        await source.count()
    assert not source.is_open

    await letterbox.declare("elsewhere")
    await source.open()
    assert source.is_consuming


async def test_the_queue_deleted_under_us_is_noticed_at_once(
    letterbox: Letterbox, a_source: SourceFactory
) -> None:
    source = a_source()
    await source.open()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(_lost(source.next_batch()))
        await letterbox.delete_queue()

    assert "ended the consumer of 'letters'" in waiting.result().what
    assert not source.is_consuming
    with pytest.raises(QueueMissing):
        await source.open()


async def test_a_channel_closed_by_the_broker_is_noticed_at_once(
    letterbox: Letterbox, a_source: SourceFactory
) -> None:
    """As the broker does to a consumer that holds a letter for longer than its consumer_timeout."""
    await letterbox.put(1)
    source = a_source()
    await source.open()
    (delivery,) = await source.next_batch(timeout_seconds=20)
    assert source._session
    assert source._session._channel
    await source._session._channel.basic_ack(4711)

    lost = await _lost(source.next_batch(timeout_seconds=20))

    assert "unknown delivery tag" in lost.what
    assert await source.acknowledge([delivery]) == 0


async def test_giving_up_ends_the_wait(letterbox: Letterbox, a_source: SourceFactory) -> None:
    source = a_source()
    await source.open()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(_lost(source.next_batch()))
        source.give_up("the broker knows no consumer of ours")

    assert waiting.result().what == "the broker knows no consumer of ours"


async def test_messages_and_consumers_are_counted(letterbox: Letterbox, a_source: SourceFactory) -> None:
    await letterbox.put(1, 2, 3)
    source = a_source(prefetch=1)
    assert await source.count() == QueueCounts(ready=3, consumers=0)

    await source.open()
    await source.next_batch(timeout_seconds=20)
    assert await source.count() == QueueCounts(ready=2, consumers=1)


async def test_our_priority_puts_us_before_others(letterbox: Letterbox, a_source: SourceFactory) -> None:
    other, ours = a_source(consumer_tag="other"), a_source(consumer_priority=10, batch_size=3)
    await other.open()
    await ours.open()

    await letterbox.put(1, 2, 3)

    assert execution_ids(await ours.next_batch(timeout_seconds=20)) == [1, 2, 3]
    assert await other.next_batch(timeout_seconds=0.05) == []


async def _is_ready(letterbox: Letterbox, count: int) -> bool:
    return await letterbox.ready() == count


async def _lost(batch: object) -> Unavailable:
    with pytest.raises(Unavailable) as lost:
        await batch  # type: ignore[misc]  # whatever it is, it must not end otherwise
    return lost.value


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_more_are_delivered_after_widening_and_what_is_in_hand_stays_acknowledgeable(
    letterbox: Letterbox, a_source: SourceFactory, kind: str
) -> None:
    await letterbox.delete_queue()
    await letterbox.declare(letterbox.QUEUE, **{"x-queue-type": kind})
    await letterbox.put(*range(1, 201))
    source = a_source(prefetch=50)
    await source.open(prefetch=1)
    seen: list[int | None] = []

    in_hand = await source.next_batch()
    assert (source.prefetch, source.outstanding) == (1, 1)
    for expected in (10, 50, 50):
        await source.grow_prefetch(10)
        assert source.prefetch == expected
        await eventually(lambda: source.outstanding >= source.prefetch)
        assert await source.acknowledge(in_hand) == len(in_hand)
        seen += execution_ids(in_hand)
        in_hand = await source.next_batch()
    while len(seen) < 200:
        seen += execution_ids(in_hand)
        await source.acknowledge(in_hand)
        in_hand = await source.next_batch(timeout_seconds=0.5)

    assert sorted(number or 0 for number in seen) == list(range(1, 201)), "each once"
    await source.close()
    assert await letterbox.ready() == 0
