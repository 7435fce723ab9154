"""What our RabbitMQ user must be allowed, as the three patterns of `rabbitmqctl set_permissions`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dlq_handler.domain.canary import CANARY_EXCHANGE, CANARY_QUEUE
from dlq_handler.domain.publish_check_names import PUBLISH_CHECK_PATTERN
from dlq_handler.domain.topology import Blueprint
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
    rescues: bool = False,
    sends_canaries: bool = False,
    holds_game_days: bool = False,
) -> BrokerPermissions:
    """The least that will do. The broker asks for configure on a worker queue when we look at its TTL.

    `rescues`: whether we also consume the queues of workers that are gone. `sends_canaries`: whether there is a canary.
    `holds_game_days`: whether `dlq-handler game-day` runs as this user.
    """
    exchanges = [exchange.name for exchange in blueprint.exchanges]
    worker_queue = re.escape(blueprint.workers.queue_pattern).replace(r"\{id\}", "[0-9]+")
    game_day = (blueprint.workers.queue(GAME_DAY_WORKER_ID), WITNESS_QUEUE) if holds_game_days else ()
    witnessed = (*game_day, blueprint.executions_exchange) if holds_game_days else ()
    canary = (CANARY_EXCHANGE, CANARY_QUEUE) if sends_canaries else ()
    # Whoever declares a queue that dead-letters must be allowed to write where its messages go.
    into = (blueprint.dead_letter_exchange,) if sends_canaries or holds_game_days else ()
    return BrokerPermissions(
        configure=_any_of(
            map(re.escape, (*exchanges, *blueprint.queues, *canary, *game_day)),
            worker_queue,
            PUBLISH_CHECK_PATTERN,
        ),
        # Binding writes to the queue and reads from the exchange; publishing writes to the exchange.
        write=_any_of(
            map(re.escape, (*blueprint.queues, blueprint.executions_exchange, *canary, *into, *game_day)),
            PUBLISH_CHECK_PATTERN,
        ),
        read=_any_of(
            map(re.escape, (blueprint.intake_queue, blueprint.dead_letter_exchange, *canary, *witnessed)),
            *([worker_queue] if rescues else ()),
            PUBLISH_CHECK_PATTERN,
        ),
    )


def _any_of(names: Iterable[str], *patterns: str) -> str:
    return f"^({'|'.join([*names, *patterns])})$"
