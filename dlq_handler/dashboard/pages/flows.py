"""The flows with the step of their stop, and the page of one flow: what a stop has done, does, and would do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard.shell import render
from dlq_handler.dashboard.site import Site
from dlq_handler.dashboard.words import NONE, State, thousands
from dlq_handler.history import events_sql
from dlq_handler.lifecycle import flows_sql
from dlq_handler.lifecycle.flow import Flow, FlowStatus, StopStep
from dlq_handler.lifecycle.flow_summary import STEP_TEXTS, stop_preview
from dlq_handler.web.errors import Refused

MOST_STOPPED = 200

_STATES: Mapping[FlowStatus, State] = {
    FlowStatus.STARTING: State.UNKNOWN,
    FlowStatus.ACTIVE: State.OK,
    FlowStatus.STOPPING: State.WARN,
    FlowStatus.STOPPED: State.UNKNOWN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowsFacts:
    flows: Sequence[Flow]
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRow:
    id: str
    href: str
    kind: str
    blueprint: str
    state: State
    word: str
    since: datetime
    step: str
    """`3 of 6: rerouted`."""
    worker_id: int | None
    queues: int
    error: str
    is_over: bool
    """Its stop is complete, and nothing is left to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    name: str
    meaning: str
    state: State
    word: str
    since: datetime | None


async def gather(site: Site) -> FlowsFacts:
    database = site.world.database
    # First: an event after it makes the page reload.
    after = await events_sql.latest_id(database)
    return FlowsFacts(flows=await flows_sql.list_flows(database), after=after)


async def flows_page(site: Site, request: Request) -> Response:
    remembered = await site.ask("/flows", lambda: gather(site))
    facts = remembered.facts
    rows = [flow_row(one) for one in facts.flows] if facts else []
    over = [row for row in rows if row.is_over]
    context = {
        "rows": [row for row in rows if not row.is_over],
        "over": over[:MOST_STOPPED],
        "more": thousands(len(over) - MOST_STOPPED) if len(over) > MOST_STOPPED else None,
        "is_enabled": site.world.lifecycle_enabled,
        "outage": remembered.outage,
    }
    shell = site.shell(
        request, f"Flows · {site.headline().title}", here="/flows", after=facts.after if facts else None
    )
    is_fragment = request.query_params.get("fragment") == "rows"
    return render("fragments/flows.html" if is_fragment else "flows.html", shell, context)


async def flow_page(site: Site, request: Request, flow_id: str) -> Response:
    remembered = await site.ask("/flows", lambda: gather(site))
    facts = remembered.facts
    if facts is None:
        return site.outage_page(request, remembered.outage, back=("/flows", "Flows"))
    flow = next((one for one in facts.flows if one.id == flow_id), None)
    if flow is None:
        raise Refused(
            404, f"There is no flow {flow_id}. Records of completed stops are deleted by retention."
        )
    context = {
        "flow": flow,
        "row": flow_row(flow),
        "params": " ".join(f"{name}={value}" for name, value in flow.params.items()) or NONE,
        "steps": step_rows(flow),
        "queues": [(queue, stop_preview(queue, ready=None)) for queue in flow.queues],
        "outage": remembered.outage,
    }
    shell = site.shell(request, f"Flow {flow.id}: {flow.status}", here="/flows", after=facts.after)
    is_fragment = request.query_params.get("fragment") == "flow"
    return render("fragments/flow.html" if is_fragment else "flow.html", shell, context)


def flow_row(flow: Flow) -> FlowRow:
    is_waiting = flow.status is FlowStatus.STOPPING and flow.last_error is not None
    state, word = _STATES[flow.status], flow.status.value
    if is_waiting:
        word = "stopping, waits"
    elif flow.leaked:
        state, word = State.BAD, "stopped, queues left"
    elif flow.status is FlowStatus.STOPPED and flow.step is None:
        word = "not started" if flow.aborted_at is None else "worker returned"
    return FlowRow(
        id=flow.id,
        href=f"/flows/{flow.id}",
        kind=flow.kind.value,
        blueprint=flow.blueprint,
        state=state,
        word=word,
        since=flow.since,
        step=NONE if flow.step is None else f"{flow.step.number + 1} of {len(StopStep)}: {flow.step}",
        worker_id=flow.worker_id,
        queues=len(flow.queues),
        error=flow.last_error or NONE,
        is_over=flow.status is FlowStatus.STOPPED and not flow.leaked,
    )


def step_rows(flow: Flow) -> Sequence[StepRow]:
    """Empty: no stop was wanted."""
    if flow.step is None and flow.status is not FlowStatus.STOPPING:
        return ()
    return [_step_row(flow, step) for step in StopStep]


def _step_row(flow: Flow, step: StopStep) -> StepRow:
    is_now = flow.step is step
    if not flow.has_reached(step):
        state, word = State.UNKNOWN, "to come"
    elif is_now and flow.status is FlowStatus.STOPPING:
        state, word = (State.WARN, "waits") if flow.last_error else (State.WARN, "now")
    else:
        state, word = State.OK, "done"
    return StepRow(
        name=step.value,
        meaning=STEP_TEXTS[step],
        state=state,
        word=word,
        since=flow.step_since if is_now else None,
    )
