"""Observe what the decision about a flow needs: its worker's row, its queues, and the queues of other flows."""

from datetime import datetime

from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.rabbitmq_backend import RabbitMQBackend
from dlq_handler.database.engine import Database
from dlq_handler.database.lease_sql import database_time
from dlq_handler.database.transaction import Transaction
from dlq_handler.errors import Unavailable
from dlq_handler.host.flow_workers_sql import FlowWorker, read_flow_worker
from dlq_handler.host.worker import AvailabilityPolicy, has_returned, has_stopped
from dlq_handler.lifecycle import flows_sql
from dlq_handler.lifecycle.flow import (
    Flow,
    FlowObservation,
    FlowStatus,
    FlowWorkerState,
    ObservedQueue,
    StopStep,
)
from dlq_handler.safety.gate_service import Gate


class FlowObserver:
    def __init__(
        self,
        database: Database,
        backend: RabbitMQBackend,
        gate: Gate,
        *,
        availability: AvailabilityPolicy,
        management: ManagementApi | None = None,
    ) -> None:
        """`management`: None where only AMQP is allowed."""
        self._database, self._backend, self._gate = database, backend, gate
        self._availability, self._management = availability, management

    async def observe(self, flow: Flow) -> tuple[FlowObservation, datetime]:
        """With the database's time. Of the broker only what the decision needs: there may be many flows."""
        async with self._database.transaction() as tx:
            now = await database_time(tx)
            worker = await self._read(tx, flow)
            claimed = await flows_sql.claims(tx, flow.queue_names, besides=flow.id)
        is_counted = flow.status is FlowStatus.STOPPING or bool(flow.leaked)
        observed = FlowObservation(
            worker=self._observed(worker),
            queues=await self._count(flow) if is_counted else {},
            open_executions=worker.open_executions if worker is not None and flow.rerouted_at else 0,
            claimed=frozenset(claimed),
        )
        return observed, now

    async def read_worker(self, tx: Transaction, flow: Flow) -> FlowWorkerState | None:
        return self._observed(await self._read(tx, flow))

    async def _read(self, tx: Transaction, flow: Flow) -> FlowWorker | None:
        if flow.worker_id is None:
            return None
        return await read_flow_worker(tx, flow.worker_id, rerouted_at=flow.rerouted_at)

    def _observed(self, found: FlowWorker | None) -> FlowWorkerState | None:
        if found is None:
            return None
        return FlowWorkerState(
            last_heartbeat=found.worker.last_heartbeat,
            has_stopped=has_stopped(
                found.worker, link_age_seconds=self._gate.watched_seconds, policy=self._availability
            ),
            has_registered=has_returned(found.worker, policy=self._availability),
            is_cordoned=found.is_cordoned,
        )

    async def _count(self, flow: Flow) -> dict[str, ObservedQueue]:
        queues: dict[str, ObservedQueue] = {}
        for name in flow.queue_names:
            counts = await self._backend.count(name)
            if counts is not None:
                queues[name] = ObservedQueue(
                    ready=counts.ready,
                    consumers=counts.consumers,
                    unacked=await self._unacked(name) if flow.step is StopStep.DRAINED else None,
                )
        return queues

    async def _unacked(self, queue: str) -> int | None:
        if self._management is None:
            return None
        try:
            return await self._management.unacknowledged(queue)
        except Unavailable:
            # By AMQP alone a stop waits for the same time, and does without this number.
            return None
