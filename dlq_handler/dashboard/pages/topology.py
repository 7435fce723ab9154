"""The topology page: for each queue whether its dead letters arrive, broken routes first, with the repairing command.

From the last observation, a few seconds old: a page that is loaded often must not ask the broker each time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard.shell import render
from dlq_handler.dashboard.site import Site
from dlq_handler.dashboard.words import NONE, UNKNOWN, State, thousands
from dlq_handler.diagnosis.view import OFF, Unknown
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.topology.canary import CanaryState, WorkerCanary
from dlq_handler.topology.check import CheckedQueue, CheckedTopology, QueueRole
from dlq_handler.topology.routing import Answer, ExchangeStep, Path, QueueStep

MOST_ROWS = 200


async def topology_page(site: Site, request: Request) -> Response:
    topology = site.world.topology()
    canaries = None if site.view is None else site.view.canaries
    known = (
        {}
        if canaries is None or canaries == OFF or isinstance(canaries, Unknown)
        else {one.worker_id: one for one in canaries}
    )
    rows = (
        ()
        if isinstance(topology, Unknown)
        else topology_rows(topology.checked, site.world.worker_queues, known)
    )
    shown = [row for row in rows if row.state is not State.WARN]
    context = {
        "unknown": topology.explanation if isinstance(topology, Unknown) else None,
        "rows": shown[:MOST_ROWS],
        "more": thousands(len(shown) - MOST_ROWS) if len(shown) > MOST_ROWS else None,
        "unrecorded": [row for row in rows if row.state is State.WARN],
        "intake": None if isinstance(topology, Unknown) else topology.checked.intake_queue,
        "limits": () if isinstance(topology, Unknown) else topology.limits,
        "findings": () if isinstance(topology, Unknown) else topology.checked.findings,
        "canaries_off": canaries == OFF,
        "canaries_unknown": canaries.explanation if isinstance(canaries, Unknown) else None,
        "observed_at": site.observed_at,
    }
    shell = site.shell(request, f"Topology · {site.headline().title}", here="/topology")
    return render("topology.html", shell, context)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRow:
    queue: str
    worker_id: int | None
    role: str
    state: State
    word: str
    exchange: str
    key: str
    intake: str
    explanation: str | None
    """What is wrong; None: nothing."""
    command: str | None
    canary: str
    canary_state: State


def topology_rows(
    checked: CheckedTopology, names: WorkerQueueNames, canaries: Mapping[int, WorkerCanary]
) -> Sequence[TopologyRow]:
    rows = [_row(one, names.owner_of(one.queue), canaries) for one in checked.queues]
    # Executions depend on the queues of workers only.
    order = (State.BAD, State.UNKNOWN, State.WARN, State.OK)
    return sorted(rows, key=lambda row: (order.index(row.state), row.role != QueueRole.WORKER.value))


def _row(one: CheckedQueue, worker_id: int | None, canaries: Mapping[int, WorkerCanary]) -> TopologyRow:
    state, word = _state(one)
    exchange, key, intake = _steps(one.path)
    canary = canaries.get(worker_id) if worker_id is not None else None
    return TopologyRow(
        queue=one.queue,
        worker_id=worker_id if one.role in (QueueRole.WORKER, QueueRole.RETIRED_WORKER) else None,
        role=one.role.value,
        state=state,
        word=word,
        exchange=exchange,
        key=key,
        intake=intake,
        explanation=None if one.arrives is Answer.ARRIVES else one.sentence,
        command=_command(one, worker_id),
        canary=_canary(canary),
        canary_state=_CANARIES[canary.state] if canary else State.UNKNOWN,
    )


def _state(one: CheckedQueue) -> tuple[State, str]:
    is_worker = one.role is QueueRole.WORKER
    match one.arrives:
        case Answer.ARRIVES:
            return State.OK, "arrives"
        case Answer.UNKNOWN:
            return State.UNKNOWN, "unknown"
        case Answer.BROKEN_ROUTE:
            # For a queue of another service only the record is lost: no execution depends on it.
            return (State.BAD, "broken route") if is_worker else (State.WARN, "no record")
        case Answer.NO_QUEUE:
            return (State.BAD if is_worker else State.WARN), "no queue"


def _command(one: CheckedQueue, worker_id: int | None) -> str | None:
    if one.role is not QueueRole.WORKER:
        return None
    match one.arrives:
        case Answer.BROKEN_ROUTE:
            return "dlq-handler topology apply"
        case Answer.NO_QUEUE:
            return f"dlq-handler topology declare-worker-queue {worker_id} --yes"
        case Answer.UNKNOWN:
            return "dlq-handler topology check"
        case Answer.ARRIVES:
            return None


def _steps(path: Path) -> tuple[str, str, str]:
    """Exchanges, routing keys and queues after the first queue, each in order."""
    exchanges = [one for one in path if isinstance(one, ExchangeStep)]
    keys = dict.fromkeys(one.key for one in exchanges)
    queues = [one.name for one in path[1:] if isinstance(one, QueueStep)]
    return (
        " → ".join(one.name or "default exchange" for one in exchanges) or UNKNOWN,
        ", ".join(keys) or UNKNOWN,
        ", ".join(queues) or UNKNOWN,
    )


_CANARIES = {
    CanaryState.OK: State.OK,
    CanaryState.LOST: State.BAD,
    CanaryState.UNKNOWN: State.UNKNOWN,
}


def _canary(canary: WorkerCanary | None) -> str:
    if canary is None:
        return NONE
    match canary.state:
        case CanaryState.OK:
            return "arrived" if canary.took_seconds is None else f"{canary.took_seconds:.1f} s"
        case CanaryState.LOST:
            return f"lost: {canary.explanation}"
        case CanaryState.UNKNOWN:
            return canary.explanation
