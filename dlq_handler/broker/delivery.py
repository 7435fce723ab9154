"""A delivered message: as plain values before anything in it is trusted, as an item, and on its channel. Pure."""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Generic, Protocol, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class CutBody:
    """Facts about a body that was too large to be kept: only its beginning is there."""

    size: int
    sha256: str
    """Of the whole body, in hex digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawMessage:
    exchange: str
    routing_key: str
    redelivered: bool
    message_id: str | None
    correlation_id: str | None
    headers: Mapping[str, object]
    body: bytes
    cut: CutBody | None = None
    """Set exactly when `body` is only the beginning of a body."""
    undecodable: str | None = None
    """Why the AMQP properties could not be decoded; None: they were decoded."""
    raw_properties: bytes = b""
    """The undecoded properties. They distinguish two such messages."""

    @property
    def body_size(self) -> int:
        return self.cut.size if self.cut else len(self.body)

    @property
    def body_sha256(self) -> str:
        """Of the whole body, also of one that was cut."""
        return self.cut.sha256 if self.cut else hashlib.sha256(self.body).hexdigest()


class QueueItem(Protocol):
    """What the consumer needs to know of a message after it was read. None of it ever changes."""

    @property
    def held_bytes(self) -> int:
        """Memory that it takes until it is acknowledged."""

    @property
    def order_key(self) -> int | None:
        """Items with the same key are taken in the order of their delivery. None: the order does not matter."""

    @property
    def died_at(self) -> datetime | None:
        """When it was dead-lettered; None: unknown."""

    @property
    def is_canary(self) -> bool:
        """A test message of dlq-handler: it does not count for the age of the oldest item."""


Item = TypeVar("Item", bound=QueueItem)


@dataclass(frozen=True, slots=True)
class Delivery(Generic[Item]):
    """One item as it arrived over one channel. Its tag is valid on no other channel."""

    tag: int
    incarnation: int
    item: Item


@dataclass(frozen=True, slots=True, kw_only=True)
class AckPlan:
    multiple_up_to: int | None
    """One acknowledgement for every open tag up to this one."""
    singles: tuple[int, ...]


def plan_acks(open_tags: Iterable[int], done: Collection[int]) -> AckPlan:
    """`open_tags`: delivered and not acknowledged, ascending. The plan covers those of them that are in `done`."""
    done = frozenset(done)
    tags = list(open_tags)
    together = list(takewhile(done.__contains__, tags))
    return AckPlan(
        multiple_up_to=together[-1] if together else None,
        singles=tuple(tag for tag in tags[len(together) :] if tag in done),
    )
