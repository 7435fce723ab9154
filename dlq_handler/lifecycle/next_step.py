"""Decide what the leader does next about a flow. Pure, and total: each action is idempotent and may be repeated.

Order of a stop: the retired queue is bound before a key is unbound, because the host publishes without `mandatory`, so
that a message on an unbound key is lost. What is left is drained before a queue is deleted, because deleting a queue
dead-letters nothing. A worker that returns ends the stop at every step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from dlq_handler.lifecycle.flow import Flow, FlowKind, FlowObservation, FlowStatus, FlowWorkerState, StopStep
from dlq_handler.lifecycle.flow_blueprint import FlowQueue
from dlq_handler.lifecycle.options import LifecycleOptions
from dlq_handler.text import in_units

REBIND_SECONDS = 600.0
"""Time after an aborted stop in which the bindings are made again at each check: an unbind of a process that was frozen
may arrive late. Also the time after a stop for which the keys of a flow without a worker lead to the retired queue."""

FIRST_PAUSE_SECONDS = 2.0
"""Pause after the first attempt to delete a queue; it doubles with each further attempt."""

LEAKED_PAUSE_SECONDS = 60.0
"""Interval between attempts to delete a queue that was listed as leaked."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """The flow is as it should be."""


@dataclass(frozen=True, slots=True)
class CheckLater:
    """Check again later. `report`: what it waits for, when that takes long."""

    report: str | None = None


@dataclass(frozen=True, slots=True)
class BeginStart:
    """Record which queues the start makes, before it makes them."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create and bind the queues. The flow is active after that."""


@dataclass(frozen=True, slots=True)
class RollBack:
    """Delete what a failed start has made."""


@dataclass(frozen=True, slots=True)
class Take:
    """Record this step. Nothing else is done."""

    step: StopStep


@dataclass(frozen=True, slots=True)
class Cordon:
    worker_id: int


@dataclass(frozen=True, slots=True)
class BindRetired:
    """Bind the retired queue with the flow's own keys."""


@dataclass(frozen=True, slots=True)
class Unbind:
    """Unbind the flow's keys from its queues."""


@dataclass(frozen=True, slots=True)
class Drain:
    queue: FlowQueue


@dataclass(frozen=True, slots=True)
class Delete:
    """Try to delete these queues. The broker refuses while they have consumers or messages."""

    queues: tuple[FlowQueue, ...]


@dataclass(frozen=True, slots=True)
class ListAsLeaked:
    """End the attempts to delete these queues, so that the stop can complete."""

    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Forget:
    """These leaked queues no longer exist, or belong to another flow."""

    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Abort:
    """End the stop, because the worker has returned. `binds`: its queues and bindings may have to be made again."""

    binds: bool


@dataclass(frozen=True, slots=True)
class Rebind:
    """Make the queues and bindings again."""


@dataclass(frozen=True, slots=True)
class Release:
    """Unbind the retired queue: no message can come on these keys any more."""


Action = (
    Nothing
    | CheckLater
    | BeginStart
    | Create
    | RollBack
    | Take
    | Cordon
    | BindRetired
    | Unbind
    | Drain
    | Delete
    | ListAsLeaked
    | Forget
    | Abort
    | Rebind
    | Release
)


def next_step(
    flow: Flow, observed: FlowObservation, options: LifecycleOptions, *, now: datetime, lease: str
) -> Action:
    """`lease`: the process that acts."""
    match flow.status:
        case FlowStatus.STARTING:
            return _start(flow, lease)
        case FlowStatus.ACTIVE:
            return Rebind() if _is_rebinding(flow, now) else Nothing()
        case FlowStatus.STOPPING:
            return _stop(flow, observed, options, now)
        case FlowStatus.STOPPED:
            return _after_stop(flow, observed, now)


def has_returned(flow: Flow, worker: FlowWorkerState | None) -> bool:
    """A stop of a flow begins while its worker works, so its heartbeats count only after the stop found it idle. A
    retirement begins when the worker is gone.
    """
    if worker is None:
        return False
    if flow.kind is FlowKind.FLOW and not flow.has_reached(StopStep.REROUTED):
        return False
    if worker.has_registered:
        return True
    before, last = flow.idle_heartbeat, worker.last_heartbeat
    return flow.has_reached(StopStep.REROUTED) and last is not None and (before is None or last > before)


def _start(flow: Flow, lease: str) -> Action:
    if flow.last_error is not None:
        return RollBack()
    if flow.last_lease is None:
        return BeginStart()
    # A start whose process ended is not continued: its caller got no answer, and repeats it.
    return Create() if flow.last_lease == lease else RollBack()


def _stop(flow: Flow, observed: FlowObservation, options: LifecycleOptions, now: datetime) -> Action:
    if has_returned(flow, observed.worker):
        return Abort(binds=flow.has_reached(StopStep.REROUTED))
    if flow.step is None:
        return Take(StopStep.SIGNALLED)
    if flow.step is StopStep.STOPPED:
        return Take(StopStep.STOPPED)
    action = _of_step(flow, flow.step, observed, options, now)
    if action is not None:
        return action
    # The step is complete.
    if options.pause_step is flow.step:
        return CheckLater(f"paused after step {flow.step} by dlq_handler.lifecycle.pause_after")
    return Take(tuple(StopStep)[flow.step.number + 1])


def _of_step(
    flow: Flow, step: StopStep, observed: FlowObservation, options: LifecycleOptions, now: datetime
) -> Action | None:
    """None: the step is complete."""
    match step:
        case StopStep.SIGNALLED:
            if flow.worker_id is None or observed.worker is None or observed.worker.is_cordoned:
                return None
            return Cordon(flow.worker_id)
        case StopStep.IDLE:
            return _wait_until_idle(flow, observed, options, now)
        case StopStep.REROUTED:
            return _reroute(flow, observed, options, now)
        case StopStep.DRAINED:
            return _drain(flow, observed, options, now)
        case StopStep.DELETED:
            return _delete(flow, observed, options, now)
        case StopStep.STOPPED:
            return None


def _wait_until_idle(
    flow: Flow, observed: FlowObservation, options: LifecycleOptions, now: datetime
) -> Action | None:
    reasons = []
    if observed.consumers:
        names = ", ".join(name for name, queue in sorted(observed.queues.items()) if queue.consumers)
        reasons.append(f"{observed.consumers} consumer(s) of {names}")
    if observed.worker is not None and not observed.worker.has_stopped:
        reasons.append(f"worker {flow.worker_id}, which is neither inactive nor unavailable")
    if not reasons:
        return None
    return _waiting(flow, " and ".join(reasons), options, now)


def _reroute(
    flow: Flow, observed: FlowObservation, options: LifecycleOptions, now: datetime
) -> Action | None:
    if not flow.is_retired_bound:
        return BindRetired()
    if flow.rerouted_at is not None:
        return None
    # A consumer that has come back must not be cut off.
    return _wait_until_idle(flow, observed, options, now) or Unbind()


def _drain(flow: Flow, observed: FlowObservation, options: LifecycleOptions, now: datetime) -> Action | None:
    for queue in _own_queues(flow, observed):
        found = observed.queues[queue.name]
        if found.ready:
            if found.consumers:
                return _waiting(flow, f"{found.consumers} consumer(s) of {queue.name}", options, now)
            return Drain(queue)
    if observed.open_executions:
        # They may have messages that return, and a worker that returns needs its queue for them.
        what = f"{observed.open_executions} execution(s) of worker {flow.worker_id} that are not final"
        return _waiting(flow, what, options, now)
    settled_at = (flow.rerouted_at or flow.step_since) + timedelta(seconds=options.settle_seconds)
    if now < settled_at or any(not found.is_empty for found in observed.queues.values()):
        return _waiting(flow, "messages that a consumer held when it left", options, now)
    return None


def _delete(flow: Flow, observed: FlowObservation, options: LifecycleOptions, now: datetime) -> Action | None:
    left = [queue for queue in _own_queues(flow, observed) if queue.name not in flow.leaked]
    if not left:
        return None
    if flow.delete_attempts >= options.delete_tries:
        return ListAsLeaked(tuple(queue.name for queue in left))
    if flow.next_attempt_at is not None and now < flow.next_attempt_at:
        return CheckLater()
    # A message may have returned from a consumer that held it.
    for queue in left:
        found = observed.queues[queue.name]
        if found.ready and not found.consumers:
            return Drain(queue)
    return Delete(tuple(left))


def _after_stop(flow: Flow, observed: FlowObservation, now: datetime) -> Action:
    if flow.is_retired_bound and has_returned(flow, observed.worker):
        return Abort(binds=True)
    if _is_rebinding(flow, now):
        return Rebind()
    if flow.leaked and (flow.next_attempt_at is None or now >= flow.next_attempt_at):
        return _clean_up(flow, observed)
    if flow.is_retired_bound and observed.worker is None and _age(flow, now) >= REBIND_SECONDS:
        # No row is left that a dispatch could name, or there never was one.
        return Release()
    return Nothing()


def _clean_up(flow: Flow, observed: FlowObservation) -> Action:
    """Of leaked queues."""
    gone = [name for name in flow.leaked if name not in observed.queues or name in observed.claimed]
    if gone:
        return Forget(tuple(gone))
    if observed.open_executions:
        return Nothing()
    for name in flow.leaked:
        if not observed.queues[name].consumers:
            queue = flow.queue(name)
            return Drain(queue) if observed.queues[name].ready else Delete((queue,))
    return Nothing()


def _own_queues(flow: Flow, observed: FlowObservation) -> Iterator[FlowQueue]:
    """Those that exist and that no other live flow has."""
    for queue in flow.queues:
        if queue.name in observed.queues and queue.name not in observed.claimed:
            yield queue


def _waiting(flow: Flow, what: str, options: LifecycleOptions, now: datetime) -> CheckLater:
    seconds = (now - flow.step_since).total_seconds()
    if seconds < options.consumer_wait_seconds:
        return CheckLater()
    # In whole units: the text changes rarely, and each change is a write.
    return CheckLater(
        f"step {flow.step} has waited more than {in_units(options.consumer_wait_seconds)} for {what}"
    )


def _is_rebinding(flow: Flow, now: datetime) -> bool:
    return flow.aborted_at is not None and (now - flow.aborted_at).total_seconds() < REBIND_SECONDS


def _age(flow: Flow, now: datetime) -> float:
    return (now - flow.since).total_seconds()


def pause_after_attempt(attempts: int) -> timedelta:
    """`attempts`: how many to delete a queue have failed."""
    return timedelta(seconds=FIRST_PAUSE_SECONDS * 2 ** max(0, attempts - 1))
