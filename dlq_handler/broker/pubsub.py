"""The seam for other brokers: what the lifecycle of queues needs from one, and the errors that it may raise.

The names are those of the source document (TrustGraph's flow service). `topic` is `exchange:routing_key`,
`subscription` the name of the queue: together they are one queue and one of its bindings, so a queue with several keys
is created once for each key. tests/integration/broker/test_pubsub.py holds every implementation to the same behavior.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self, TypedDict, Unpack

from dlq_handler.broker.delivery import Delivery, Item, RawMessage
from dlq_handler.broker.outgoing import PublishOutcome
from dlq_handler.errors import Unavailable


class QueueType(StrEnum):
    CLASSIC = "classic"
    QUORUM = "quorum"


class QueueProperties(TypedDict, total=False):
    """Of a queue's declaration. A queue is always durable, and never exclusive or auto-delete."""

    ttl_ms: int | None
    """Time that a message waits before it is dead-lettered. Absent or None: for ever."""
    dlx: str | None
    """The exchange to which it is dead-lettered. Absent or None: it is dropped."""
    type: QueueType
    """Absent: classic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTopic:
    """`exchange:routing_key`. The default exchange has no name: it routes to the queue that the key names."""

    exchange: str
    routing_key: str

    @classmethod
    def parse(cls, text: str) -> Self:
        exchange, colon, routing_key = text.partition(":")
        if not colon:
            raise ValueError(f"Invalid topic {text!r}: must be EXCHANGE:ROUTING_KEY")
        return cls(exchange=exchange, routing_key=routing_key)

    def __str__(self) -> str:
        return f"{self.exchange}:{self.routing_key}"


class QueueDiffers(Exception):
    """The queue exists with another property, which is fixed since it was declared."""

    def __init__(self, queue: str, name: str, *, wanted: object, current: object) -> None:
        super().__init__(
            f"queue {queue!r} exists with {name}={current!r}, wanted is {name}={wanted!r}; properties are fixed when a "
            "queue is declared: ask for the existing value, or drain and delete the queue first"
        )
        self.queue, self.name, self.wanted, self.current = queue, name, wanted, current


class QueueInUse(Exception):
    """The queue was not deleted: it holds messages, or has consumers."""

    def __init__(self, queue: str, *, ready: int, consumers: int) -> None:
        super().__init__(
            f"queue {queue!r} is not deleted: it holds {ready} message(s) and has {consumers} consumer(s); stop its "
            "consumers and drain it first"
        )
        self.queue, self.ready, self.consumers = queue, ready, consumers


class ExchangeMissing(Unavailable):
    """A queue cannot be bound to an exchange that does not exist, and no message can be sent to it."""

    def __init__(self, exchange: str) -> None:
        super().__init__(
            "broker",
            f"exchange {exchange!r} does not exist; each service of the host declares it at its start, and so does "
            "`dlq-handler topology apply`",
        )
        self.exchange = exchange


class Producer(Protocol):
    """Sends to one topic."""

    async def send(self, body: bytes, *, message_id: str, correlation_id: str) -> PublishOutcome:
        """Persistent, confirmed, and mandatory: a message that no queue receives is `Unroutable`."""

    async def close(self) -> None:
        """Safe to repeat."""


class Consumer(Protocol[Item]):
    """Receives from one queue, which existed when it was created."""

    async def next_batch(
        self, stop: asyncio.Event | None = None, timeout_seconds: float | None = None
    ) -> list[Delivery[Item]]:
        """Empty when `stop` is set or the time is over. Raises `Unavailable` when queue or connection is lost."""

    async def acknowledge(self, deliveries: Sequence[Delivery[Item]]) -> int:
        """Returns the number acknowledged: the broker delivers the others again."""

    async def close(self) -> None:
        """Messages without an acknowledgment return to the queue. Safe to repeat."""


class PubSubBackend(Protocol):
    """Every method ends within a bounded time. A broker that does not answer is `Unavailable`."""

    async def create_producer(self, topic: str) -> Producer:
        """Creates nothing on the broker. Raises `ExchangeMissing`."""

    async def create_consumer(
        self, topic: str, subscription: str, *, read: Callable[[RawMessage], Item]
    ) -> Consumer[Item]:
        """Never creates a queue. Raises `QueueMissing`. `read` must not raise."""

    async def close(self) -> None:
        """End every connection, and every producer and consumer. Safe to repeat."""

    async def create_queue(
        self, topic: str, subscription: str, **properties: Unpack[QueueProperties]
    ) -> bool:
        """Returns True if it made the queue, False if the queue existed with these properties.

        Either way the queue receives the topic afterwards. Raises `QueueDiffers`, and `ExchangeMissing` before anything
        was made.
        """

    async def delete_queue(self, topic: str, subscription: str, *, discard: bool = False) -> bool:
        """Returns True if it deleted the queue, False if there was none.

        Raises `QueueInUse` while the queue holds messages or has consumers. `discard`: delete it anyway, with its
        messages. (The source document's always deletes the messages; here that must be asked for.)
        """

    async def queue_exists(self, topic: str, subscription: str) -> bool: ...

    async def ensure_queue(
        self, topic: str, subscription: str, **properties: Unpack[QueueProperties]
    ) -> bool:
        """Create the queue if it does not exist; True: it was made. An existing queue keeps its properties.

        Either way the queue receives the topic afterwards.
        """
