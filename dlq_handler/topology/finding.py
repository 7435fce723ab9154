"""A finding about the topology: the actual state, the wanted state, and the fix."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dlq_handler.topology.blueprint import Blueprint

_SHOWN = 5


class Severity(StrEnum):
    """The consequence of a finding."""

    BROKEN_ROUTE = "broken route"
    """An execution can hang because of this."""
    DRIFT = "drift"
    """Differs from the settings or from Attune's declaration. No execution can hang because of this."""
    NOTE = "note"
    """Worth knowing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    severity: Severity
    subject: str
    is_now: str
    wanted: str
    way_out: str | None
    """None: no action is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What this host is configured for. `worker_ids` is None when the database did not answer."""

    blueprint: Blueprint
    worker_ids: frozenset[int] | None
    ttl_ms: int
    own_consumer_tag_prefix: str = "dlq-handler."

    @property
    def broken_route(self) -> Severity:
        """The severity of a broken route; without an intake, where no dead letters are consumed, it is drift."""
        return Severity.BROKEN_ROUTE if self.blueprint.has_intake else Severity.DRIFT


def queues_as_subject(queues: Sequence[str]) -> str:
    return f"queue {queues[0]!r}" if len(queues) == 1 else f"{len(queues)} worker queues: {listed(queues)}"


def listed(names: Iterable[str]) -> str:
    shown = list(names)
    rest = len(shown) - _SHOWN
    return ", ".join(map(repr, shown[:_SHOWN])) + (f" and {rest} more" if rest > 0 else "")
