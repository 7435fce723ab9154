"""What the rooms give to the metrics: the values of their labels, and figures that each scrape reads together."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

# Any sender can forge a reason; the label must not grow with what senders invent.
OTHER_REASON = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelValues:
    """The label values that rooms define."""

    reasons: Collection[str]
    """Other reasons are counted as `OTHER_REASON`."""
    outcomes: Collection[str]
    stale_outcomes: Collection[tuple[str, str]]
    """Original status and outcome. Not all combinations exist: each status has one end, and one failure."""
    reconcile_findings: Collection[str]
    gate_causes: Collection[str]
    availabilities: Collection[str]
    service_findings: Collection[str]
    canary_states: Collection[str]
    flow_statuses: Collection[str]
    flow_steps: Collection[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFigures:
    """Of flows, and of queues of workers that are gone; None: unknown."""

    flows: Mapping[str, int] | None = None
    """By status."""
    step_seconds: Mapping[str, float] | None = None
    leaked: int | None = None
    archived: int | None = None
    archived_beyond_limit: int | None = None
    orphans: int | None = None
