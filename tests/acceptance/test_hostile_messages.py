"""Thousands of hostile messages in front of and between good dead letters: all are on record, the good ones processed.

The messages are made from a fixed seed.
"""

import asyncio
import random
import struct
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aio_pika
import pytest
from aiormq.exceptions import AMQPError

from sandbox.attune import topology
from sandbox.attune.executor import Dispatch
from tests.crash.world import CrashWorld, a_world
from tests.support.eventually import eventually
from tests.support.hostile import MESSAGE_ID, HostileMessage, Hostility
from tests.support.raw_publish import publish_bytes

HOSTILE, GOOD = 3000, 200
SEED = 20261118
EXCHANGE = "hostile"


@pytest.fixture
async def world(vhost: str, database: str, tmp_path: Path) -> AsyncIterator[CrashWorld]:
    async with a_world(vhost, database, tmp_path) as one:
        yield one


async def test_no_message_stops_the_intake_and_every_one_is_on_record(world: CrashWorld) -> None:
    dispatches = await world.schedule(GOOD)
    hostility = Hostility(SEED, execution_ids=[dispatch.execution_id for dispatch in dispatches])
    await send(world, [hostility.message() for _ in range(HOSTILE)], dispatches, random.Random(SEED))
    taken = await world.letters_ready()
    assert taken > 0.9 * (HOSTILE + GOOD), "the broker itself refuses a few"

    # Without the gate: many of these name executions that do not exist, which is its business and not content.
    async with world.sidecar(gate__unknown_percent="0", batch__size="100") as sidecar:

        async def is_all_on_record() -> bool:
            [(recorded,)] = await world.sql("SELECT coalesce(sum(1 + repeats), 0) FROM dlq_handler.letter")
            assert recorded == taken
            return True

        await eventually(is_all_on_record, timeout=120, every=0.2)
        await eventually(lambda: is_each_completed_once(world, dispatches), timeout=60)
        assert len(sidecar.events("intake.opened")) == 1, "no batch failed"
        assert not sidecar.events("loop.crashed")
        assert not sidecar.events("dead_letter.refused"), "the reader lets nothing through that is refused"
    outcomes = Counter(
        dict(await world.sql("SELECT outcome, count(*) FROM dlq_handler.letter GROUP BY outcome"))
    )
    assert outcomes["failed"] == GOOD, "no hostile message failed anything"
    assert (
        min(outcomes[one] for one in ("unreadable", "unrelated", "unknown_execution", "stale_attempt")) > 50
    )


async def send(
    world: CrashWorld, hostile: Sequence[HostileMessage], good: Sequence[Dispatch], chance: random.Random
) -> None:
    """Hostile ones first, then all in a random order. Those that the broker may refuse have their own connection."""
    async with await aio_pika.connect(world.amqp_url) as connection:
        channel = await (await connection.channel()).get_underlay_channel()
        await channel.exchange_declare(EXCHANGE, exchange_type="fanout")
        await channel.queue_bind(topology.DLX_QUEUE, EXCHANGE)
        await send_refusable(world, [message for message in hostile if message.may_be_refused])
        mixed = [message for message in hostile if not message.may_be_refused]
        first, rest = mixed[:50], [*mixed[50:], *map(as_bytes, good[:-1])]
        chance.shuffle(rest)
        for one in [*first, *rest]:
            await publish_bytes(
                channel, EXCHANGE, routing_key=one.routing_key, properties=one.properties, body=one.body
            )
        await channel.queue_declare(topology.DLX_QUEUE, passive=True)
        # Confirmed, so the queue has taken all before it: its count lags behind what was sent.
        await world.dead_letter(good[-1:])


def as_bytes(dispatch: Dispatch) -> HostileMessage:
    message_id = dispatch.message.message_id.encode()
    return HostileMessage(
        routing_key=dispatch.message.routing_key.encode(),
        properties=struct.pack(">HB", MESSAGE_ID, len(message_id)) + message_id,
        body=dispatch.message.body,
    )


async def is_each_completed_once(world: CrashWorld, dispatches: Sequence[Dispatch]) -> bool:
    """Failed once, and one completion event."""
    ids = [dispatch.execution_id for dispatch in dispatches]
    changes = await world.sql(
        "SELECT entity_id FROM execution_history WHERE operation = 'UPDATE' "
        "AND new_values ->> 'status' = 'failed'"
    )
    assert Counter(number for (number,) in changes) == Counter(ids)
    assert Counter(event.execution_id for event in await world.auditor.completions()) == Counter(ids)
    return True


async def send_refusable(world: CrashWorld, messages: Sequence[HostileMessage]) -> None:
    """The broker closes the connection over some of these."""
    waiting = list(messages)
    while waiting:
        connection = await aio_pika.connect(world.amqp_url)
        try:
            channel = await (await connection.channel()).get_underlay_channel()
            while waiting:
                one = waiting.pop()
                await publish_bytes(
                    channel, EXCHANGE, routing_key=one.routing_key, properties=one.properties, body=one.body
                )
                async with asyncio.timeout(10):
                    await channel.queue_declare(topology.DLX_QUEUE, passive=True)
        except (AMQPError, OSError, RuntimeError, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        finally:
            await connection.close()
