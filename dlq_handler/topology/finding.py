"""A finding about the topology: what is, what is wanted, and the way out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dlq_handler.topology.blueprint import Blueprint

_SHOWN = 5


class Severity(StrEnum):
    """What follows from a finding."""

    HOLE = "hole"
    """An execution can hang because of this."""
    DRIFT = "drift"
    """Not as configured, or not as Attune declares it; it works all the same, or loses something else."""
    NOTE = "note"
    """Worth knowing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    severity: Severity
    subject: str
    is_now: str
    wanted: str
    way_out: str | None
    """None: nothing is to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What this host is configured for. `worker_ids` is None when the database did not answer."""

    blueprint: Blueprint
    worker_ids: frozenset[int] | None
    ttl_ms: int
    own_consumer_tag_prefix: str = "dlq-handler."

    @property
    def hole(self) -> Severity:
        """Without intake nothing is promised, so nothing is a hole."""
        return Severity.HOLE if self.blueprint.has_intake else Severity.DRIFT


def queues_as_subject(queues: Sequence[str]) -> str:
    return f"queue {queues[0]!r}" if len(queues) == 1 else f"{len(queues)} worker queues: {listed(queues)}"


def listed(names: Iterable[str]) -> str:
    shown = list(names)
    rest = len(shown) - _SHOWN
    return ", ".join(map(repr, shown[:_SHOWN])) + (f" and {rest} more" if rest > 0 else "")
