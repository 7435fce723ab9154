"""What an operator may do with flows: start and stop one, retire the queues of a worker.

Promises: each wish and its audit record are one transaction. Nothing is done to the broker: the leader acts on the
record. Without `dlq_handler.lifecycle.enabled` every wish is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.lifecycle import flows_sql, wishes
from dlq_handler.lifecycle.flow import Flow, FlowStatus
from dlq_handler.lifecycle.flow_blueprint import FlowBlueprint
from dlq_handler.lifecycle.options import LifecycleOptions
from dlq_handler.lifecycle.wishes import FlowMissing, WishRefused
from dlq_handler.operations import audit_sql
from dlq_handler.operations.operation import Action, Actor
from dlq_handler.operations.operations import Changed, Impossible

log = structlog.get_logger()


class NoSuchFlow(Impossible):
    """There is no flow of this id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowWish:
    operation_id: int
    flow: Flow


@dataclass(frozen=True, slots=True, kw_only=True)
class RetirementWishes:
    operation_id: int | None
    """None: no queue can be retired, so nothing was done."""
    flows: Sequence[Flow]
    refused: Mapping[int, str]
    """Workers whose queues cannot be retired now, and why."""


class FlowOperations:
    def __init__(
        self,
        database: Database,
        options: LifecycleOptions,
        blueprints: Mapping[str, FlowBlueprint],
        *,
        names: WorkerQueueNames,
        is_shadow: bool = False,
    ) -> None:
        self._database, self._options, self._blueprints, self._names = database, options, blueprints, names
        self._is_shadow = is_shadow

    async def start(
        self,
        actor: Actor,
        flow_id: str,
        *,
        blueprint: str,
        params: Mapping[str, str],
        comment: str | None = None,
    ) -> FlowWish:
        """The record is `starting` now. Wait until it is `active`, or `stopped` with an error."""
        self.check_enabled()
        async with self._database.transaction() as tx:
            try:
                flow = await wishes.wish_start(
                    tx,
                    flow_id,
                    blueprint=blueprint,
                    params=params,
                    blueprints=self._blueprints,
                    wanted_by=actor.username,
                    comment=comment,
                )
            except WishRefused as error:
                raise Impossible(str(error)) from error
            wish = await self._record(tx, actor, Action.FLOW_START, flow, comment)
        _log(wish, actor, Action.FLOW_START)
        return wish

    async def stop(
        self, actor: Actor, flow_id: str, *, comment: str | None = None, version: str | None = None
    ) -> FlowWish:
        """`version` None: any state."""
        self.check_enabled()
        async with self._database.transaction() as tx:
            seen = await flows_sql.read_flow(tx, flow_id)
            if seen is not None and version is not None and version != flow_version(seen):
                raise Changed(f"flow {flow_id!r}", version=flow_version(seen))
            try:
                flow = await wishes.wish_stop(tx, flow_id, wanted_by=actor.username, comment=comment)
            except FlowMissing as error:
                raise NoSuchFlow(str(error)) from error
            except WishRefused as error:
                raise Impossible(str(error)) from error
            wish = await self._record(tx, actor, Action.FLOW_STOP, flow, comment)
        _log(wish, actor, Action.FLOW_STOP)
        return wish

    async def retire(
        self, actor: Actor, worker_ids: Sequence[int], *, comment: str | None = None
    ) -> RetirementWishes:
        """The caller has decided that these workers are gone; the stop itself checks it again."""
        self.check_enabled()
        flows: list[Flow] = []
        refused: dict[int, str] = {}
        async with self._database.transaction() as tx:
            for worker_id in worker_ids:
                try:
                    flows.append(
                        await wishes.wish_retirement(
                            tx, worker_id, names=self._names, wanted_by=actor.username, comment=comment
                        )
                    )
                except WishRefused as error:
                    refused[worker_id] = str(error)
            if not flows:
                return RetirementWishes(operation_id=None, flows=(), refused=refused)
            operation_id = await audit_sql.record(
                tx,
                actor,
                Action.QUEUES_RETIRE,
                subject=", ".join(f"worker {flow.worker_id}" for flow in flows[:20]),
                comment=comment,
                result=f"{len(flows)} worker(s) to be retired",
            )
        log.info(
            "operation.recorded",
            number=operation_id,
            username=actor.username,
            client=actor.client.value,
            action=Action.QUEUES_RETIRE.value,
            target=", ".join(flow.id for flow in flows[:20]),
        )
        return RetirementWishes(operation_id=operation_id, flows=flows, refused=refused)

    async def _record(
        self, tx: Transaction, actor: Actor, action: Action, flow: Flow, comment: str | None
    ) -> FlowWish:
        operation_id = await audit_sql.record(
            tx, actor, action, subject=f"flow {flow.id}", comment=comment, result=f"the flow is {flow.status}"
        )
        return FlowWish(operation_id=operation_id, flow=flow)

    def check_enabled(self) -> None:
        """Raises `Impossible`."""
        if self._is_shadow:
            raise Impossible("in shadow mode no queue is changed, so no flow is started or stopped")
        if not self._options.enabled:
            raise Impossible(
                "dlq_handler.lifecycle.enabled is false, so no flow is started or stopped; set it to true on every "
                "replica, after `dlq-handler grants --feature lifecycle`"
            )


def flow_version(flow: Flow) -> str:
    return str(flow.version)


def why_not_started(flow: Flow | None) -> str | None:
    """After a start: None while it goes on, and when it is active."""
    if flow is None:
        return "its record is gone"
    if flow.status is FlowStatus.STOPPED:
        return flow.last_error or "it was stopped"
    return None


def _log(wish: FlowWish, actor: Actor, action: Action) -> None:
    """After the commit: an operation that was rolled back must not be in the log."""
    log.info(
        "operation.recorded",
        number=wish.operation_id,
        username=actor.username,
        client=actor.client.value,
        action=action.value,
        target=f"flow {wish.flow.id}",
    )
