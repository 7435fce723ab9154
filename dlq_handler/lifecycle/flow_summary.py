"""What commands, API, pages, diagnoses and metrics show of flows. Values only, and what follows from them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dlq_handler.lifecycle.flow import Flow, FlowKind, FlowStatus, StopStep
from dlq_handler.lifecycle.flow_blueprint import Contents, FlowQueue
from dlq_handler.topology.blueprint import RETIRED_QUEUE


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSummary:
    """A flow as the JSON of commands and API shows it."""

    id: str
    blueprint: str
    params: Mapping[str, str]
    status: FlowStatus
    step: StopStep | None
    """Of a stop; null: none was taken."""
    queues: tuple[str, ...]
    version: int
    since: datetime
    last_error: str | None


def summary_of(flow: Flow) -> FlowSummary:
    return FlowSummary(
        id=flow.id,
        blueprint=flow.blueprint,
        params=dict(flow.params),
        status=flow.status,
        step=flow.step,
        queues=flow.queue_names,
        version=flow.version,
        since=flow.since,
        last_error=flow.last_error,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowNote:
    """A flow that an operator may have to act on: it starts or stops, has a leaked queue, or its stop was aborted."""

    id: str
    kind: FlowKind
    status: FlowStatus
    step: StopStep | None
    worker_id: int | None
    step_since: datetime
    last_error: str | None
    leaked: tuple[str, ...] = ()
    aborted_at: datetime | None = None
    """When the return of its worker ended a stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowsFact:
    """All flows, at one moment."""

    is_enabled: bool
    """dlq_handler.lifecycle.enabled: flows are acted on."""
    counts: Mapping[FlowStatus, int] = field(default_factory=dict)
    leaked: int = 0
    """Queues that could not be deleted."""
    archived: int = 0
    """Messages that stops recorded as `archived`."""
    archived_beyond_limit: int = 0
    """Messages that stops only counted."""
    notes: Sequence[FlowNote] = ()
    """The one that is longest in its step first; of very many not all."""

    @property
    def is_unused(self) -> bool:
        """The feature is off, and there is no record of an earlier use."""
        return not self.is_enabled and not any(self.counts.values())

    def step_seconds(self, now: datetime) -> Mapping[StopStep, float]:
        """For each step the longest time that a stop has been in it; 0: no stop is in it."""
        longest = dict.fromkeys(StopStep, 0.0)
        for note in self.notes:
            if note.status is FlowStatus.STOPPING and note.step is not None:
                seconds = max(0.0, (now - note.step_since).total_seconds())
                longest[note.step] = max(longest[note.step], seconds)
        return longest


STEP_TEXTS = {
    StopStep.SIGNALLED: "the worker is cordoned, so that the scheduler selects another one",
    StopStep.IDLE: "it waits until no queue has a consumer and the worker has stopped",
    StopStep.REROUTED: f"{RETIRED_QUEUE} is bound with the flow's keys, then they are unbound from its queues",
    StopStep.DRAINED: "the messages that are left are decided or archived",
    StopStep.DELETED: "the empty queues are deleted",
    StopStep.STOPPED: "the stop is complete",
}


def stop_preview(queue: FlowQueue, *, ready: int | None) -> str:
    """What a stop of its flow would do with this queue."""
    messages = "its messages" if ready is None else f"{ready:,} message(s)"
    if ready == 0:
        taken = "it is empty"
    elif queue.contents is Contents.DECIDE:
        taken = f"{messages} are decided as dead letters"
    else:
        taken = f"{messages} are archived"
    keys = []
    if queue.own_keys:
        keys.append(f"{', '.join(queue.own_keys)} leads to {RETIRED_QUEUE}")
    if queue.broadcast_keys:
        keys.append(f"{', '.join(queue.broadcast_keys)} is unbound")
    return "; ".join((taken, *keys, "then the queue is deleted"))
