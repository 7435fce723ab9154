"""Flows, and the queues of the vhost with their owners. A start or stop is a wish: the leader acts on it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import ConfigDict, Field, StringConstraints

from dlq_handler.api.actions import Comment, Version
from dlq_handler.api.shapes import EVERYWHERE, Shape, failures
from dlq_handler.lifecycle import flows_sql
from dlq_handler.lifecycle.flow import Flow, FlowStatus
from dlq_handler.lifecycle.flow_summary import FlowSummary, summary_of
from dlq_handler.lifecycle.queue_list import QueueRow
from dlq_handler.operations.flow_operations import NoSuchFlow
from dlq_handler.web.errors import Refused
from dlq_handler.web.users import needs_operate, user_of
from dlq_handler.web.world import UiWorld

FlowId = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Word = Annotated[str, StringConstraints(min_length=1, max_length=100)]

MOST_PARAMS = 50


class FlowList(Shape):
    flows: Sequence[FlowSummary]


class QueueListShape(Shape):
    at: datetime
    """When they were read; an answer is kept for some seconds."""
    queues: Sequence[QueueRow]
    limits: Sequence[str]
    """What could not be read, and why."""


class StartAsk(Shape):
    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    blueprint: Word
    params: Annotated[dict[Word, Word], Field(default_factory=dict, max_length=MOST_PARAMS)]
    comment: Comment = Field(description="Why; it stands in the audit.")


class StopAsk(Shape):
    model_config = ConfigDict(extra="forbid")

    comment: Comment = Field(description="Why; it stands in the audit.")
    version: Version = Field(description="Of the flow as you saw it; 409 if it has changed since.")


class Wished(Shape):
    operation_id: int
    """Its line in the audit."""
    flow: FlowSummary
    """As it is now: `starting` or `stopping`. Ask again until it is `active` or `stopped`."""


def flow_routes(world: UiWorld) -> APIRouter:
    router = APIRouter(tags=["flows"], responses=EVERYWHERE)
    operating = APIRouter(dependencies=[Depends(needs_operate)], responses=failures(400, 403, 409))

    @router.get("/flows")
    async def list_flows(status: Annotated[FlowStatus | None, Query()] = None) -> FlowList:
        """Flows, and retirements of worker queues, by id."""
        flows = await flows_sql.list_flows(world.database)
        return FlowList(flows=[summary_of(one) for one in flows if status is None or one.status is status])

    @router.get("/flows/{flow_id}", responses=failures(404))
    async def show_flow(flow_id: FlowId) -> FlowSummary:
        return summary_of(await _flow(world, flow_id))

    @operating.post("/flows", status_code=202)
    async def start_flow(request: Request, ask: StartAsk) -> Wished:
        """Start a flow: its record is `starting`, and the leader creates and binds its queues."""
        done = await world.flow_operations.start(
            user_of(request).actor,
            ask.id,
            blueprint=ask.blueprint,
            params=ask.params,
            comment=ask.comment,
        )
        return Wished(operation_id=done.operation_id, flow=summary_of(done.flow))

    @operating.post("/flows/{flow_id}/stop", status_code=202, responses=failures(404))
    async def stop_flow(request: Request, flow_id: FlowId, ask: StopAsk) -> Wished:
        """Stop a flow: its record is `stopping`, and the leader takes the steps of the stop."""
        try:
            done = await world.flow_operations.stop(
                user_of(request).actor, flow_id, comment=ask.comment, version=ask.version
            )
        except NoSuchFlow as error:
            raise Refused(404, f"{error}.") from error
        return Wished(operation_id=done.operation_id, flow=summary_of(done.flow))

    @router.get("/queues")
    async def list_queues() -> QueueListShape:
        """The queues of the vhost, with their owners. Without the management API only those that are known by name."""
        found = await world.services.read_queues()
        return QueueListShape(at=found.at, queues=found.rows, limits=found.limits)

    router.include_router(operating)
    return router


async def _flow(world: UiWorld, flow_id: str) -> Flow:
    async with world.database.transaction() as tx:
        flow = await flows_sql.read_flow(tx, flow_id)
    if flow is None:
        raise Refused(404, f"There is no flow {flow_id}.")
    return flow
