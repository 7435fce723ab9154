"""The rights of dlq-handler's RabbitMQ user, as the three patterns of `rabbitmqctl set_permissions`."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dlq_handler.domain.canary import CANARY_EXCHANGE, CANARY_QUEUE
from dlq_handler.domain.publish_check_names import PUBLISH_CHECK_PATTERN
from dlq_handler.domain.topology import STOCK_QUEUE, Blueprint
from dlq_handler.domain.worker import GAME_DAY_WORKER_ID

# What `dlq-handler game-day` sees by. One name for all: whoever has it is the only one that holds a game day.
WITNESS_QUEUE = "dlq_handler.game_day.queue"


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
    holds_game_days: bool = False,
) -> BrokerPermissions:
    """The least rights that are sufficient. Reading the TTL of a worker queue needs configure on that queue.

    `intake_queues`: the intake queue and the shadow queue. `set_permissions` replaces all rights of a user, so the
    rights for both modes are granted at once: turning shadow mode on or off needs no new grant.
    `rescues`: dlq-handler also consumes the queues of unavailable workers. `sends_canaries`: the canary is enabled.
    `holds_game_days`: `dlq-handler game-day` runs as this user.
    """
    other_intake = tuple(intake_queues) if blueprint.has_intake else ()
    declared = tuple(dict.fromkeys((STOCK_QUEUE, *blueprint.queues, *other_intake)))
    consumed = tuple(dict.fromkeys((blueprint.intake_queue, *other_intake)))
    exchanges = [exchange.name for exchange in blueprint.exchanges]
    worker_queue = re.escape(blueprint.workers.queue_pattern).replace(r"\{id\}", "[0-9]+")
    game_day = (blueprint.workers.queue(GAME_DAY_WORKER_ID), WITNESS_QUEUE) if holds_game_days else ()
    witnessed = (*game_day, blueprint.executions_exchange) if holds_game_days else ()
    canary = (CANARY_EXCHANGE, CANARY_QUEUE) if sends_canaries else ()
    # Declaring a queue with a dead-letter exchange needs write on that exchange.
    into = (blueprint.dead_letter_exchange,) if sends_canaries or holds_game_days else ()
    return BrokerPermissions(
        configure=_any_of(
            map(re.escape, (*exchanges, *declared, *canary, *game_day)),
            worker_queue,
            PUBLISH_CHECK_PATTERN,
        ),
        # Binding writes to the queue and reads from the exchange; publishing writes to the exchange.
        write=_any_of(
            map(re.escape, (*declared, blueprint.executions_exchange, *canary, *into, *game_day)),
            PUBLISH_CHECK_PATTERN,
        ),
        read=_any_of(
            map(re.escape, (*consumed, blueprint.dead_letter_exchange, *canary, *witnessed)),
            *([worker_queue] if rescues else ()),
            PUBLISH_CHECK_PATTERN,
        ),
    )


def _any_of(names: Iterable[str], *patterns: str) -> str:
    return f"^({'|'.join([*names, *patterns])})$"
