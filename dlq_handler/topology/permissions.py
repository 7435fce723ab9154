"""The rights of dlq-handler's RabbitMQ user, as the three patterns of `rabbitmqctl set_permissions`."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dlq_handler.broker.publish.publish_checker import PUBLISH_CHECK_PATTERN
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.topology.blueprint import Blueprint
from dlq_handler.topology.canary import CANARY_EXCHANGE, CANARY_QUEUE


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPermissions:
    configure: str
    write: str
    read: str


def broker_permissions(
    blueprint: Blueprint,
    *,
    intake_queues: Collection[str] = (),
    rescues: bool = False,
    sends_canaries: bool = False,
) -> BrokerPermissions:
    """The least rights that are sufficient. Reading the TTL of a worker queue needs configure on that queue.

    `intake_queues`: the intake queue and the shadow queue. `set_permissions` replaces all rights of a user, so the
    rights for both modes are granted at once: turning shadow mode on or off needs no new grant.
    `rescues`: dlq-handler also consumes the queues of unavailable workers. `sends_canaries`: the canary is enabled.
    """
    other_intake = tuple(intake_queues) if blueprint.has_intake else ()
    declared = tuple(dict.fromkeys((STOCK_QUEUE, *blueprint.queues, *other_intake)))
    consumed = tuple(dict.fromkeys((blueprint.intake_queue, *other_intake)))
    exchanges = [exchange.name for exchange in blueprint.exchanges]
    worker_queue = re.escape(blueprint.workers.queue_pattern).replace(r"\{id\}", "[0-9]+")
    canary = (CANARY_EXCHANGE, CANARY_QUEUE) if sends_canaries else ()
    # Declaring a queue with a dead-letter exchange needs write on that exchange.
    into = (blueprint.dead_letter_exchange,) if sends_canaries else ()
    return BrokerPermissions(
        configure=_any_of(
            map(re.escape, (*exchanges, *declared, *canary)),
            worker_queue,
            PUBLISH_CHECK_PATTERN,
        ),
        # Binding writes to the queue and reads from the exchange; publishing writes to the exchange.
        write=_any_of(
            map(re.escape, (*declared, blueprint.executions_exchange, *canary, *into)),
            PUBLISH_CHECK_PATTERN,
        ),
        read=_any_of(
            map(re.escape, (*consumed, blueprint.dead_letter_exchange, *canary)),
            *([worker_queue] if rescues else ()),
            PUBLISH_CHECK_PATTERN,
        ),
    )


def _any_of(names: Iterable[str], *patterns: str) -> str:
    return f"^({'|'.join([*names, *patterns])})$"
