"""Declare a worker's queue: durable, not auto-delete, with TTL and dead-letter exchange. Only on request.

Refuses to declare a queue that differs: worker queues with two TTLs, or a queue that makes Attune's own declaration
fail, are worse than a missing queue.
"""

from collections.abc import Collection

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_probe import (
    DEAD_LETTER_EXCHANGE_ARGUMENT,
    TTL_ARGUMENT,
    count_queue,
    probe_queue,
    probe_ttl_ms,
)
from dlq_handler.topology.apply import bind
from dlq_handler.topology.blueprint import Blueprint, bindings_of_workers

# Attune sends the TTL as a signed 32-bit number: above this it would declare a negative one.
LARGEST_TTL_MS = 2**31 - 1


class WorkerQueueRefused(Exception):
    """The queue was not declared; the text names what exists, what is wanted, and what to do."""


async def declare_worker_queue(
    admin: AdminConnection,
    blueprint: Blueprint,
    worker_id: int,
    *,
    ttl_ms: int,
    compare_with: Collection[int] = (),
) -> bool:
    """True: declared. False: it existed as wanted.

    `compare_with`: ids of other workers, whose queues must have the same TTL.
    """
    if not 1 <= ttl_ms <= LARGEST_TTL_MS:
        raise WorkerQueueRefused(
            f"Invalid TTL {ttl_ms} ms: Attune's services can declare 1 to {LARGEST_TTL_MS}"
        )
    for other in sorted(compare_with):
        await _refuse_other_ttl(admin, blueprint.workers.queue(other), ttl_ms)
    queue = blueprint.workers.queue(worker_id)
    if await count_queue(admin, queue) is not None:
        await _refuse_unlike(admin, blueprint, queue, ttl_ms)
        return False
    # The bindings first: dead letters of the new queue need them.
    if blueprint.has_intake:
        await bind(admin, blueprint, bindings_of_workers(blueprint, [worker_id]))
    async with admin.channel(f"declare queue {queue!r}") as channel:
        await channel.queue_declare(
            queue,
            durable=True,
            arguments={
                DEAD_LETTER_EXCHANGE_ARGUMENT: blueprint.dead_letter_exchange,
                TTL_ARGUMENT: ttl_ms,
            },
        )
        await channel.queue_bind(
            queue, blueprint.executions_exchange, blueprint.workers.routing_key(worker_id)
        )
    return True


async def _refuse_other_ttl(admin: AdminConnection, queue: str, ttl_ms: int) -> None:
    current = await probe_ttl_ms(admin, queue)
    if current is not None and current != ttl_ms:
        raise WorkerQueueRefused(
            f"queue {queue!r} has x-message-ttl={current}, wanted was {ttl_ms}; arguments are fixed at "
            f"creation: ask for {current}, or drain and delete the existing queues first"
        )


async def _refuse_unlike(admin: AdminConnection, blueprint: Blueprint, queue: str, ttl_ms: int) -> None:
    wanted = {DEAD_LETTER_EXCHANGE_ARGUMENT: blueprint.dead_letter_exchange, TTL_ARGUMENT: ttl_ms}
    probed = await probe_queue(admin, queue)
    if probed is None:
        raise WorkerQueueRefused(f"queue {queue!r} exists, but this user may not see its arguments")
    for name, value in wanted.items():
        if probed.arguments.get(name) != value:
            raise WorkerQueueRefused(
                f"queue {queue!r} exists with {name}={probed.arguments.get(name)!r}, wanted was {value!r}; "
                "arguments are fixed at creation: drain and delete it first"
            )
    if probed.auto_delete or not probed.durable:
        raise WorkerQueueRefused(
            f"queue {queue!r} exists with durable={probed.durable}, auto_delete={probed.auto_delete}, wanted "
            "was a durable queue that is not auto-delete: drain and delete it first"
        )
