"""A letter on its channel, and which acknowledgements settle it. Pure: the frames are sent elsewhere."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import takewhile

from dlq_handler.domain.dead_letter import DeadLetter


@dataclass(frozen=True, slots=True)
class Delivery:
    """One letter as it came over one channel. Its tag means nothing on any other."""

    tag: int
    incarnation: int
    letter: DeadLetter
    held_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AckPlan:
    multiple_up_to: int | None
    """One acknowledgement for every open tag up to this one."""
    singles: tuple[int, ...]


def plan_acks(open_tags: Iterable[int], settled: Collection[int]) -> AckPlan:
    """`open_tags`: delivered, not acknowledged, ascending. The plan covers those of them that are settled."""
    settled = frozenset(settled)
    tags = list(open_tags)
    together = list(takewhile(settled.__contains__, tags))
    return AckPlan(
        multiple_up_to=together[-1] if together else None,
        singles=tuple(tag for tag in tags[len(together) :] if tag in settled),
    )
