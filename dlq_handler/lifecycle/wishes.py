"""Wishes: what commands, the API and the orphan watch write into the records of flows. The leader acts on them.

Each runs in the caller's transaction, beside its audit record. A wish that cannot be granted raises `WishRefused`, and
nothing is written.
"""

from collections.abc import Mapping
from datetime import datetime

from dlq_handler.database.lease_sql import database_time
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.lifecycle import changes, flows_sql
from dlq_handler.lifecycle.flow import Flow, FlowKind, FlowStatus
from dlq_handler.lifecycle.flow_blueprint import (
    WORKER_BLUEPRINT,
    WORKER_PARAM,
    BlueprintInvalid,
    FlowBlueprint,
    FlowQueues,
    blueprint_of,
    check_flow_id,
    worker_blueprint,
)


class WishRefused(Exception):
    """The text says what is in the way, and what to do."""


class FlowMissing(WishRefused):
    """There is no flow of this id."""


async def wish_start(
    tx: Transaction,
    flow_id: str,
    *,
    blueprint: str,
    params: Mapping[str, str],
    blueprints: Mapping[str, FlowBlueprint],
    wanted_by: str,
    comment: str | None,
) -> Flow:
    try:
        check_flow_id(flow_id)
        queues = blueprint_of(blueprint, blueprints).expand(params)
    except BlueprintInvalid as error:
        raise WishRefused(str(error)) from error
    await flows_sql.take_turn(tx)
    known = await flows_sql.read_flow(tx, flow_id)
    if known is not None and known.status.is_live:
        raise WishRefused(
            f"flow {flow_id!r} exists and is {known.status}; choose another id, or stop it with "
            f"`dlq-handler flows stop {flow_id}`"
        )
    if known is not None and known.leaked:
        raise WishRefused(
            f"flow {flow_id!r} was stopped, and these queues of it are not deleted yet: {', '.join(known.leaked)}; "
            "wait until they are, or choose another id"
        )
    await _refuse_claimed(tx, queues)
    now = await database_time(tx)
    flow = _new(
        flow_id,
        FlowKind.FLOW,
        FlowStatus.STARTING,
        queues=queues,
        blueprint=blueprint,
        params=params,
        wanted_by=wanted_by,
        comment=comment,
        now=now,
        # The start unbinds them, after its own queues are bound.
        is_retired_bound=known is not None and known.is_retired_bound,
    )
    return await _add(tx, flow)


async def wish_stop(tx: Transaction, flow_id: str, *, wanted_by: str, comment: str | None) -> Flow:
    flow = await flows_sql.read_flow(tx, flow_id)
    if flow is None:
        raise FlowMissing(f"there is no flow {flow_id!r}; `dlq-handler flows list` shows the flows")
    match flow.status:
        case FlowStatus.STARTING:
            raise WishRefused(f"flow {flow_id!r} is starting; wait until it is active")
        case FlowStatus.STOPPING | FlowStatus.STOPPED:
            raise WishRefused(f"flow {flow_id!r} is {flow.status} already")
        case FlowStatus.ACTIVE:
            pass
    now = await database_time(tx)
    wanted = changes.stop_wanted(flow, wanted_by=wanted_by, comment=comment, now=now)
    if not await flows_sql.save(tx, wanted):
        raise WishRefused(f"flow {flow_id!r} has changed at this moment; repeat the command")
    return wanted


async def wish_retirement(
    tx: Transaction, worker_id: int, *, names: WorkerQueueNames, wanted_by: str, comment: str | None
) -> Flow:
    """The queues of a worker that no flow started. The caller has decided that the worker is gone."""
    params = {WORKER_PARAM: str(worker_id)}
    queues = worker_blueprint(names).expand(params)
    flow_id = retirement_id(worker_id)
    await flows_sql.take_turn(tx)
    known = await flows_sql.read_flow(tx, flow_id)
    if known is not None and known.status.is_live:
        raise WishRefused(f"the queues of worker {worker_id} are being retired already")
    await _refuse_claimed(tx, queues)
    flow = _new(
        flow_id,
        FlowKind.RETIREMENT,
        FlowStatus.STOPPING,
        queues=queues,
        blueprint=WORKER_BLUEPRINT,
        params=params,
        wanted_by=wanted_by,
        comment=comment,
        now=await database_time(tx),
        is_retired_bound=False,
    )
    return await _add(tx, flow)


def retirement_id(worker_id: int) -> str:
    return f"worker-{worker_id}"


async def _refuse_claimed(tx: Transaction, queues: FlowQueues) -> None:
    names = [queue.name for queue in queues.flow]
    topics = [topic for queue in queues.flow for topic in queue.own_topics]
    claimed = await flows_sql.claims(tx, names, topics=topics)
    for name in sorted(claimed, key=lambda one: (one not in names, one)):
        what = f"queue {name!r} belongs" if name in names else f"key {name!r} leads"
        raise WishRefused(
            f"{what} to flow {claimed[name]!r}; stop that flow first, or choose other parameters"
        )


async def _add(tx: Transaction, flow: Flow) -> Flow:
    added = await flows_sql.add(tx, flow)
    if added is None:
        raise WishRefused(f"flow {flow.id!r} exists; choose another id")
    return added


def _new(
    flow_id: str,
    kind: FlowKind,
    status: FlowStatus,
    *,
    queues: FlowQueues,
    blueprint: str,
    params: Mapping[str, str],
    wanted_by: str,
    comment: str | None,
    now: datetime,
    is_retired_bound: bool,
) -> Flow:
    return Flow(
        id=flow_id,
        kind=kind,
        blueprint=blueprint,
        params=dict(params),
        status=status,
        step=None,
        version=1,
        worker_id=queues.worker_id,
        queues=queues.flow,
        shared=queues.shared,
        since=now,
        step_since=now,
        is_retired_bound=is_retired_bound,
        wanted_by=wanted_by,
        comment=comment,
    )
