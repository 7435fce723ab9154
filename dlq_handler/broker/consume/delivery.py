"""A message on its channel, and which acknowledgements it takes. Pure: the frames are sent elsewhere."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Generic, Protocol, TypeVar


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
