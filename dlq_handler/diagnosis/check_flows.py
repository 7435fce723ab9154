"""Checks of flows: stops that wait, queues that could not be deleted, workers that returned, orphaned queues. Pure."""

from collections.abc import Sequence

from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.diagnosis import Diagnosis, ok, problem, unknown
from dlq_handler.diagnosis.view import OFF, ObservedWorker, OrphansFact, Unknown, View
from dlq_handler.lifecycle.flow import FlowStatus
from dlq_handler.lifecycle.flow_summary import FlowNote, FlowsFact
from dlq_handler.metric_values import FlowFigures

_SHOWN = 5


def stops(view: View) -> Diagnosis | None:
    """A stop has no deadline, because it never disconnects a consumer. So it is reported while it waits."""
    fact = _used(view)
    if fact is None or isinstance(fact, Unknown):
        return None if fact is None else unknown(Check.FLOWS, fact)
    pending = [one for one in fact.notes if one.status in (FlowStatus.STARTING, FlowStatus.STOPPING)]
    if pending and not fact.is_enabled:
        return problem(
            Check.FLOWS,
            f"{_flows(pending)} to be started or stopped, and dlq_handler.lifecycle.enabled is false, so no replica "
            "acts on it.",
            "Set dlq_handler.lifecycle.enabled to true on every replica.",
            since=min(one.step_since for one in pending),
            evidence=_named(pending),
        )
    waiting = [one for one in pending if one.status is FlowStatus.STOPPING and one.last_error is not None]
    if not waiting:
        return ok(Check.FLOWS, f"{len(pending)} flow(s) start or stop, and none waits for long.")
    first = waiting[0]
    return problem(
        Check.FLOWS,
        f"The stop of {_name(first)} waits: {_clause(first)}.",
        "Stop the consumer or the worker that is named. The stop continues by itself; no message is lost meanwhile.",
        since=min(one.step_since for one in waiting),
        evidence=_named(waiting),
        headline=f"The stop of {_name(first)} waits"
        if len(waiting) == 1
        else f"The stops of {len(waiting)} flows wait",
    )


def leaked_queues(view: View) -> Diagnosis | None:
    fact = _used(view)
    if fact is None or isinstance(fact, Unknown):
        return None if fact is None else unknown(Check.LEAKED_QUEUES, fact)
    if not fact.leaked:
        return ok(Check.LEAKED_QUEUES, "Every queue of a stopped flow was deleted.")
    notes = [one for one in fact.notes if one.leaked]
    names = [name for one in notes for name in one.leaked]
    return problem(
        Check.LEAKED_QUEUES,
        f"{fact.leaked} queue(s) of stopped flows could not be deleted. dlq-handler tries it again every minute.",
        "Stop the consumers of these queues, or run what `dlq-handler grants --feature lifecycle` prints.",
        since=min((one.step_since for one in notes), default=None),
        evidence=[
            *names[:_SHOWN],
            *(f"{one.id}: {one.last_error}" for one in notes[:_SHOWN] if one.last_error),
        ],
        headline=f"{fact.leaked} queue(s) of stopped flows still exist",
    )


def returned_workers(view: View) -> Diagnosis | None:
    """A worker whose queue was deleted between its declare and its consume goes on without a consumer."""
    fact = _used(view)
    check = Check.RETURNED_WORKERS
    if fact is None or isinstance(fact, Unknown):
        return None if fact is None else unknown(check, fact)
    aborted = {
        one.worker_id: one for one in fact.notes if one.aborted_at is not None and one.worker_id is not None
    }
    if not aborted:
        return ok(check, "No worker has returned while its queues were retired.")
    if isinstance(view.workers, Unknown):
        return unknown(check, view.workers)
    returned = [one for one in view.workers if one.registered.worker.id in aborted and one.is_reporting]
    found = [one for one in returned if not isinstance(one.queue, Unknown) and not one.is_consumed]
    if found:
        return _without_consumer(found, aborted)
    for one in returned:
        if isinstance(one.queue, Unknown):
            return unknown(check, Unknown(f"{one.name}: {one.queue.explanation}", one.queue.cause))
    return ok(check, f"{len(returned)} worker(s) returned while their queues were retired, and consume them.")


def _without_consumer(found: Sequence[ObservedWorker], aborted: dict[int, FlowNote]) -> Diagnosis:
    ids = [one.registered.worker.id for one in found]
    named = ", ".join(str(one) for one in ids[:_SHOWN]) + (
        f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    )
    is_one = len(ids) == 1
    return problem(
        Check.RETURNED_WORKERS,
        f"{found[0].name if is_one else f'{len(ids)} workers'} returned while {'its' if is_one else 'their'} queues "
        f"were retired, and {'has' if is_one else 'have'} no consumer. dlq-handler made the queues and bindings again.",
        f"Restart worker {named}." if is_one else f"Restart workers {named}.",
        since=min((at for one in ids if (at := aborted[one].aborted_at)), default=None),
        evidence=[text for one in ids[:_SHOWN] if (text := aborted[one].last_error)],
        headline=f"Worker {named} returned and does not consume"
        if is_one
        else "Workers returned and do not consume",
    )


def orphans(view: View) -> Diagnosis | None:
    """A recommendation: an orphaned queue harms no execution, and the host never deletes one."""
    fact = view.orphans
    if fact == OFF:
        return None
    if isinstance(fact, Unknown):
        return unknown(Check.ORPHANED_QUEUES, fact)
    if not fact.queues:
        return ok(Check.ORPHANED_QUEUES, "No queue of a worker that is gone was found.", evidence=fact.limits)
    messages = "an unknown number of messages" if fact.ready is None else f"{fact.ready:,} message(s)"
    workers = "a worker that is" if fact.workers == 1 else f"{fact.workers:,} workers that are"
    return ok(
        Check.ORPHANED_QUEUES,
        f"{fact.queues:,} queue(s) of {workers} gone hold {messages}. Attune never deletes them.",
        evidence=fact.limits,
        action="List them with `dlq-handler queues orphans`, retire them with `dlq-handler queues retire --all --yes`.",
    )


def flow_figures(view: View) -> FlowFigures:
    """For the metrics."""
    flows, orphaned = view.flows, view.orphans
    orphans = orphaned.queues if isinstance(orphaned, OrphansFact) else None
    if isinstance(flows, Unknown):
        return FlowFigures(orphans=orphans)
    return FlowFigures(
        flows={status.value: flows.counts.get(status, 0) for status in FlowStatus},
        step_seconds={step.value: seconds for step, seconds in flows.step_seconds(view.at).items()},
        leaked=flows.leaked,
        archived=flows.archived,
        archived_beyond_limit=flows.archived_beyond_limit,
        orphans=orphans,
    )


def _used(view: View) -> FlowsFact | Unknown | None:
    """None: there is nothing to check."""
    if isinstance(view.flows, Unknown):
        return view.flows
    return None if view.flows.is_unused else view.flows


def _flows(notes: Sequence[FlowNote]) -> str:
    return f"{_name(notes[0])} is" if len(notes) == 1 else f"{len(notes)} flows are"


def _name(note: FlowNote) -> str:
    return f"flow {note.id!r}"


def _clause(note: FlowNote) -> str:
    return (note.last_error or "").rstrip(".")


def _named(notes: Sequence[FlowNote]) -> list[str]:
    return [
        f"{one.id}: {one.status}"
        + (f", step {one.step}" if one.step else "")
        + (f": {one.last_error}" if one.last_error else "")
        for one in notes[:_SHOWN]
    ]
