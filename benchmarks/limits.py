"""The limits: parts of the work alone, to show what the whole could reach at best.

`aio-pika`, `aiormq`: letters taken and every 500th acknowledged with `multiple`; no database, nothing is read.
`intake`: our own source; every letter is read, and settled in batches; no database.
`publishing`: our own publisher; completion events confirmed in batches; no database.
`statements`: our own transactions, mark in the outbox included, on letters made in memory; no broker.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import aio_pika
import aiormq
from aio_pika.abc import AbstractIncomingMessage
from aiormq.abc import DeliveredMessage

from benchmarks.contender import Stopwatch
from benchmarks.world import ACTION_REF, CONFIG, WORKER_ID
from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.delivery import RawMessage
from dlq_handler.broker.outgoing import Confirmed, OutgoingMessage
from dlq_handler.broker.publisher import Publisher
from dlq_handler.dead_letters.intake import DeadLetterConsumers
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.parse import read_dead_letter
from dlq_handler.dead_letters.recorder import LetterRecorder
from dlq_handler.endings.ender import Ender
from dlq_handler.endings.outbox_sql import OutboxEntry, mark_confirmed
from dlq_handler.endings.relay import OutboxRelay
from dlq_handler.endings.writers import LiveWriter
from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.host.messages import Destination, completion_event
from dlq_handler.logs import configure_logging
from dlq_handler.rooms import new_metrics
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate_service import Gate
from dlq_handler.settings import Settings, load
from dlq_handler.settings.databases import database_of
from dlq_handler.settings.servers import broker_of, open_publisher
from sandbox.attune import messages
from sandbox.attune.database import bare_connection

QUEUE = "attune.dlx.queue"
BATCH = 500
PREFETCH = 2 * BATCH

Item = TypeVar("Item")


async def take_by_aio_pika(stopwatch: Stopwatch, settings: Settings) -> None:
    connection = await aio_pika.connect(_broker_url(settings))
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=PREFETCH)
        queue = await channel.get_queue(QUEUE)
        taken, done = 0, asyncio.Event()

        async def take(letter: AbstractIncomingMessage) -> None:
            nonlocal taken
            taken += 1
            if taken % BATCH == 0 or taken == stopwatch.letters:
                await letter.ack(multiple=True)
            if taken == stopwatch.letters:
                done.set()

        stopwatch.start()
        await queue.consume(take)
        await done.wait()
        stopwatch.stop()


async def take_by_aiormq(stopwatch: Stopwatch, settings: Settings) -> None:
    connection = await aiormq.connect(_broker_url(settings))
    channel = await connection.channel(publisher_confirms=False)
    await channel.basic_qos(prefetch_count=PREFETCH)
    taken, done = 0, asyncio.Event()

    async def take(letter: DeliveredMessage) -> None:
        nonlocal taken
        taken += 1
        if taken % BATCH == 0 or taken == stopwatch.letters:
            await channel.basic_ack(letter.delivery_tag or 0, multiple=True)
        if taken == stopwatch.letters:
            done.set()

    stopwatch.start()
    await channel.basic_consume(QUEUE, take)
    await done.wait()
    stopwatch.stop()
    await connection.close()


async def take_by_our_intake(stopwatch: Stopwatch, settings: Settings) -> None:
    own, address = settings.dlq_handler, broker_of(settings)
    consumers = DeadLetterConsumers(
        address,
        AdminConnection(address),
        own.intake,
        own.batch,
        prefetch=settings.prefetch,
        tag=settings.new_consumer_tag(),
    )
    source = consumers.of_queue(settings.blueprint.intake_queue, priority=own.intake.consumer_priority)
    try:
        stopwatch.start()
        await source.open()
        left = stopwatch.letters
        while left:
            batch = await source.next_batch()
            await source.acknowledge(batch)
            left -= len(batch)
        stopwatch.stop()
    finally:
        await source.close()


async def publish_notices(stopwatch: Stopwatch, settings: Settings) -> None:
    outbox = settings.dlq_handler.outbox
    completions = [
        _completion_event(number, outbox.exchange, outbox.routing_key) for number in range(stopwatch.letters)
    ]
    async with open_publisher(settings, broker_of(settings)) as publisher:
        await publisher.publish(completions[:1])
        stopwatch.start()
        for batch in _batches(completions):
            outcomes = await publisher.publish(batch)
            if not all(isinstance(outcome, Confirmed) for outcome in outcomes):
                raise RuntimeError("a completion event was not confirmed")
        stopwatch.stop()


class _OfferedEntries(OutboxRelay):
    """Publishes nothing."""

    offered: Sequence[OutboxEntry] = ()

    def offer(self, entries: Sequence[OutboxEntry]) -> None:
        self.offered = entries


async def write_statements(stopwatch: Stopwatch, settings: Settings) -> None:
    database, metrics = database_of(settings), new_metrics()
    own = settings.dlq_handler
    gate = Gate(
        database,
        own.gate,
        unavailable_after_seconds=settings.worker_unavailable_after_seconds,
        metrics=metrics,
    )
    brake = Brake(
        database,
        own.brake,
        batch_size=own.batch.size,
        replica=settings.replica,
        metrics=metrics,
    )
    publisher = Publisher(broker_of(settings), publish_timeout_seconds=10)
    relay = _OfferedEntries(
        database,
        publisher,
        settings.dlq_handler.outbox,
        publish_timeout_seconds=10,
        holder="bench",
        metrics=metrics,
    )
    ender = Ender(
        database,
        LiveWriter(gate, brake, relay),
        LetterRecorder(
            settings.record_options,
            metrics,
            gate=gate,
            availability=settings.availability,
        ),
        BATCH,
    )
    try:
        letters = await _letters_of_scheduled(settings)
        await ender.check()
        stopwatch.start()
        for batch in _batches(letters):
            await ender.commit(batch)
            await mark_confirmed(database, [entry.id for entry in relay.offered])
        stopwatch.stop()
    finally:
        await database.dispose()


async def _letters_of_scheduled(settings: Settings) -> list[DeadLetter]:
    async with bare_connection(settings.database.url.get_secret_value()) as session:
        rows = await session.fetch(
            "SELECT id, updated FROM attune.execution WHERE status = 'scheduled' ORDER BY id"
        )
    return [_letter(row["id"], row["updated"]) for row in rows]


def _letter(execution_id: int, updated: datetime) -> DeadLetter:
    dispatch = messages.dispatch(
        execution_id=execution_id,
        worker_id=WORKER_ID,
        action_ref=ACTION_REF,
        scheduled_at=updated,
        config=CONFIG,
    )
    queue, exchange = f"worker.{WORKER_ID}.executions", "attune.executions"
    death = {
        "count": 1,
        "reason": "expired",
        "queue": queue,
        "time": datetime.now(UTC).replace(microsecond=0),
        "exchange": exchange,
        "routing-keys": [dispatch.routing_key],
    }
    return read_dead_letter(
        RawMessage(
            exchange="attune.dlx",
            routing_key=dispatch.routing_key,
            redelivered=False,
            message_id=dispatch.message_id,
            correlation_id=dispatch.correlation_id,
            headers={"x-death": [death], "x-first-death-queue": queue, "x-first-death-reason": "expired"},
            body=dispatch.body,
        ),
        body_limit_bytes=65_536,
    )


def _completion_event(number: int, exchange: str, routing_key: str) -> OutgoingMessage:
    now = datetime.now(UTC)
    execution = Execution(
        id=number,
        status=ExecutionStatus.SCHEDULED,
        updated=now,
        worker_id=WORKER_ID,
        action_id=1,
        action_ref=ACTION_REF,
        is_workflow_task=False,
    )
    result: dict[str, object] = {"error": "Worker queue TTL expired", "message": "x" * 100, "queue": "y" * 20}
    return completion_event(
        execution,
        ExecutionStatus.FAILED,
        result,
        destination=Destination(exchange, routing_key),
        correlation_id=None,
        now=now,
    )


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def _broker_url(settings: Settings) -> str:
    return settings.broker_urls[0].get_secret_value()


LIMITS = {
    "aio-pika": take_by_aio_pika,
    "aiormq": take_by_aiormq,
    "intake": take_by_our_intake,
    "publishing": publish_notices,
    "statements": write_statements,
}


def main() -> None:
    settings = load(None, os.environ).settings
    # As the sidecar does it: a line for every letter is part of the work.
    configure_logging(level=settings.dlq_handler.log.level, format=settings.dlq_handler.log.format)
    asyncio.run(LIMITS[sys.argv[1]](Stopwatch(), settings))


if __name__ == "__main__":
    main()
