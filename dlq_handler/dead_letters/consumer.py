"""The consumer of a queue of dead letters: the intake queue, or the queue of a worker that is drained."""

from functools import partial

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.consume.consumer import QueueConsumer
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.options import SHADOW_KEY_PREFIX, BatchOptions, IntakeOptions
from dlq_handler.dead_letters.parse import read_dead_letter


def dead_letter_consumer(
    address: BrokerAddress,
    admin: AdminConnection,
    queue: str,
    *,
    intake: IntakeOptions,
    batch: BatchOptions,
    prefetch: int,
    priority: int,
    tag: str,
    is_shadow: bool = False,
) -> QueueConsumer[DeadLetter]:
    return QueueConsumer(
        address,
        admin,
        queue=queue,
        prefetch=prefetch,
        batch_size=batch.size,
        batch_wait_seconds=batch.wait_ms / 1000,
        max_bytes=intake.buffer_bytes,
        read=partial(
            read_dead_letter,
            body_limit_bytes=intake.stored_body_bytes,
            key_prefix=SHADOW_KEY_PREFIX if is_shadow else "",
        ),
        max_body_bytes=intake.max_body_bytes,
        consumer_priority=priority,
        consumer_tag=tag,
    )
