"""The blueprint: the exchanges, queues and bindings that bring a dead letter to the intake queue.

Pure. Exchanges and queues are exactly as Attune's services declare them: durable, without arguments. dlq-handler adds
only bindings to the dead-letter exchange and, if configured, a separate intake queue. In shadow mode that is a queue
for copies, with limits, and the stock queue is left unchanged.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from dlq_handler.broker.outgoing import PUBLISH_CHECK_PATTERN
from dlq_handler.host.names import (
    CANCEL_KEY_PATTERN,
    DEAD_LETTER_EXCHANGE,
    EVENTS_EXCHANGE,
    EXECUTIONS_EXCHANGE,
    NOTIFICATIONS_EXCHANGE,
    OTHER_KEYS,
    STOCK_QUEUE,
)
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.topology.canary import CANARY_EXCHANGE, CANARY_QUEUE

RETIRED_QUEUE = "dlq_handler.retired.queue"
"""Gets what is still published to the queues of retired workers and stopped flows. Durable, without arguments: nothing
in it expires, and nothing is dropped from it. Every replica consumes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangePlan:
    """An exchange as Attune declares it: durable, not auto-delete, no arguments."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Binding:
    """One binding of a queue to the dead-letter exchange."""

    queue: str
    routing_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowLimits:
    """Limits that keep the shadow queue small while no replica consumes it."""

    max_letters: int
    ttl_ms: int

    @property
    def arguments(self) -> dict[str, int | str]:
        return {
            "x-max-length": self.max_letters,
            "x-message-ttl": self.ttl_ms,
            # The default, set explicitly: with the other mode the publishers would get rejections.
            "x-overflow": "drop-head",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """What must exist. `intake_queue` is either the stock queue or a separate one.

    Without an intake nothing is bound: dead letters would pile up without a consumer.
    """

    shadow: ShadowLimits | None = None
    """Set in shadow mode, where `intake_queue` is the one for copies."""

    dead_letter_exchange: str = DEAD_LETTER_EXCHANGE
    intake_queue: str = STOCK_QUEUE
    has_intake: bool = True
    executions_exchange: str = EXECUTIONS_EXCHANGE
    workers: WorkerQueueNames = field(default_factory=WorkerQueueNames)

    @property
    def intake_is_our_own(self) -> bool:
        """True: dlq-handler receives all dead letters in a queue that only dlq-handler uses."""
        return self.intake_queue != STOCK_QUEUE and self.shadow is None

    @property
    def exchanges(self) -> tuple[ExchangePlan, ...]:
        return (
            ExchangePlan(name=EVENTS_EXCHANGE, type="topic"),
            ExchangePlan(name=self.executions_exchange, type="topic"),
            ExchangePlan(name=NOTIFICATIONS_EXCHANGE, type="fanout"),
            ExchangePlan(name=self.dead_letter_exchange, type="direct"),
        )

    @property
    def queues(self) -> tuple[str, ...]:
        if self.shadow is not None:
            return (self.intake_queue,) if self.has_intake else ()
        if self.has_intake and self.intake_is_our_own:
            return (STOCK_QUEUE, self.intake_queue)
        return (STOCK_QUEUE,)

    def arguments_of(self, queue: str) -> Mapping[str, int | str]:
        return self.shadow.arguments if self.shadow is not None and queue == self.intake_queue else {}


def bindings_of_workers(blueprint: Blueprint, worker_ids: Collection[int]) -> frozenset[Binding]:
    """What these workers need: their dispatches, and in a queue of dlq-handler's own their cancel requests as well."""
    if not blueprint.has_intake:
        return frozenset()
    key_of = [blueprint.workers.routing_key]
    if blueprint.intake_is_our_own:
        key_of.append(cancel_key)
    return frozenset(
        Binding(queue=blueprint.intake_queue, routing_key=key(worker_id))
        for worker_id in worker_ids
        for key in key_of
    )


def cancel_key(worker_id: int) -> str:
    return CANCEL_KEY_PATTERN.replace("{id}", str(worker_id))


def wanted_bindings(blueprint: Blueprint, worker_ids: Collection[int]) -> frozenset[Binding]:
    """All bindings of dlq-handler for this set of workers."""
    fixed = OTHER_KEYS if blueprint.has_intake and blueprint.intake_is_our_own else ()
    return bindings_of_workers(blueprint, worker_ids).union(
        Binding(queue=blueprint.intake_queue, routing_key=key) for key in fixed
    )


def superseded_bindings(blueprint: Blueprint, worker_ids: Collection[int]) -> frozenset[Binding]:
    """Bindings that an earlier setting of dlq-handler may have left on the stock queue.

    With a separate intake queue, a worker key that is still bound there would deliver each dead letter twice, once to
    the stock consumer. Only dlq-handler binds these exact keys, so they can be removed.
    """
    if not (blueprint.has_intake and blueprint.intake_is_our_own):
        return frozenset()
    return frozenset(
        Binding(queue=STOCK_QUEUE, routing_key=blueprint.workers.routing_key(worker_id))
        for worker_id in worker_ids
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleQueues:
    """Queues that dlq-handler creates, binds, drains and deletes, beside the retired queue."""

    patterns: tuple[str, ...]
    """Regular expressions of their names."""
    sources: tuple[str, ...]
    """Exchanges that they are bound to."""
    dead_letter_exchanges: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPermissions:
    """The three patterns of `rabbitmqctl set_permissions`."""

    configure: str
    write: str
    read: str


def broker_permissions(
    blueprint: Blueprint,
    *,
    intake_queues: Collection[str] = (),
    drains: bool = False,
    sends_canaries: bool = False,
    lifecycle: LifecycleQueues | None = None,
) -> BrokerPermissions:
    """The least rights that are sufficient. Reading the TTL of a worker queue needs configure on that queue.

    `intake_queues`: the intake queue and the shadow queue. `set_permissions` replaces all rights of a user, so the
    rights for both modes are granted at once: turning shadow mode on or off needs no new grant.
    `drains`: dlq-handler also consumes the queues of unavailable workers. `sends_canaries`: the canary is enabled.
    `lifecycle`: None while the lifecycle of queues is off.
    """
    other_intake = tuple(intake_queues) if blueprint.has_intake else ()
    declared = tuple(dict.fromkeys((STOCK_QUEUE, *blueprint.queues, *other_intake)))
    consumed = tuple(dict.fromkeys((blueprint.intake_queue, *other_intake)))
    exchanges = [exchange.name for exchange in blueprint.exchanges]
    worker_queue = re.escape(blueprint.workers.queue_pattern).replace(r"\{id\}", "[0-9]+")
    canary = (CANARY_EXCHANGE, CANARY_QUEUE) if sends_canaries else ()
    # Declaring a queue with a dead-letter exchange needs write on that exchange.
    into = {blueprint.dead_letter_exchange} if sends_canaries else set[str]()
    owned: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    if lifecycle is not None:
        into |= {*lifecycle.dead_letter_exchanges}
        owned, sources = (re.escape(RETIRED_QUEUE), *lifecycle.patterns), lifecycle.sources
    return BrokerPermissions(
        configure=_any_of(
            map(re.escape, (*exchanges, *declared, *canary)),
            worker_queue,
            *owned,
            PUBLISH_CHECK_PATTERN,
        ),
        # Binding writes to the queue and reads from the exchange; publishing writes to the exchange.
        write=_any_of(
            map(re.escape, (*declared, blueprint.executions_exchange, *canary, *sorted(into))),
            *owned,
            PUBLISH_CHECK_PATTERN,
        ),
        read=_any_of(
            map(re.escape, dict.fromkeys((*consumed, blueprint.dead_letter_exchange, *canary, *sources))),
            *([worker_queue] if drains else ()),
            *owned,
            PUBLISH_CHECK_PATTERN,
        ),
    )


def _any_of(names: Iterable[str], *patterns: str) -> str:
    return f"^({'|'.join([*names, *patterns])})$"
