"""What the leader does about one flow: each action is one transaction, and may be repeated.

Promises: each change of the broker is made inside a transaction that holds the record and the leader's lease. The calls
end, with their connection if need be, before that transaction does, so that no change of an earlier leader comes after
one of a later leader. A process that was frozen may break this with the one call that it was about to make: so bindings
that matter are made twice (`SPARE`), and are made again for a while after an aborted stop. Never: deletes a queue with
messages or consumers, or cuts off a consumer.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Protocol, assert_never

import structlog

from dlq_handler.broker.consumer import QueueMissing
from dlq_handler.broker.pubsub import QueueDiffers, QueueInUse
from dlq_handler.broker.rabbitmq_backend import RabbitMQBackend
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership, LeaseLost
from dlq_handler.database.lease_sql import database_time
from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters.queue_emptier import Drained, Note
from dlq_handler.errors import BrokerRightsMissing, Contended, Unavailable
from dlq_handler.health import bounded
from dlq_handler.history import event as events
from dlq_handler.history import events_sql
from dlq_handler.host import worker_lifecycle_sql
from dlq_handler.lifecycle import changes, flows_sql
from dlq_handler.lifecycle import next_step as steps
from dlq_handler.lifecycle.flow import Flow, FlowObservation, FlowStatus, StopStep
from dlq_handler.lifecycle.flow_blueprint import Contents, FlowQueue
from dlq_handler.lifecycle.observe import FlowObserver
from dlq_handler.lifecycle.options import LifecycleOptions
from dlq_handler.topology.blueprint import RETIRED_QUEUE

log = structlog.get_logger()

BROKER_SECONDS = 5.0
"""Maximum time for all calls to the broker within one transaction."""

_STATEMENT_TIMEOUT_MS = 10_000
"""Also how long the transaction may wait for the broker between two statements: more than `BROKER_SECONDS`."""

SPARE = {"x-dlq-handler": "spare"}
"""Arguments of a second binding with the same key. A process that was frozen sends one late unbind at most: it removes
only one of the two."""


class Drainer(Protocol):
    """Takes over the messages of a queue whose keys lead elsewhere."""

    async def drain(
        self,
        queue: str,
        stop: asyncio.Event,
        *,
        worker_id: int | None,
        is_archive: bool = False,
        records_left: int = 0,
        note: Note | None = None,
    ) -> Drained: ...


class FlowChanged(Exception):
    """The record is not the one that the decision was made on. The next look decides anew."""


class FlowActions:
    def __init__(
        self,
        database: Database,
        backend: RabbitMQBackend,
        drainer: Drainer,
        leadership: Leadership,
        observer: FlowObserver,
        *,
        options: LifecycleOptions,
        holder: str,
    ) -> None:
        """`backend` is for these actions alone: a call that takes too long resets its connection."""
        self._database, self._backend, self._drainer = database, backend, drainer
        self._leadership, self._observer, self._options = leadership, observer, options
        self.holder = holder
        self.stop = asyncio.Event()

    async def close(self) -> None:
        await self._backend.close()

    async def perform(  # noqa: PLR0912  one case for each action
        self, flow: Flow, action: steps.Action, observed: FlowObservation, now: datetime
    ) -> Flow | None:
        """The record as it is now, or None when there is nothing more to do at this time."""
        match action:
            case steps.Nothing():
                return None
            case steps.CheckLater(report=report):
                if report is not None and report != flow.last_error:
                    await self.report(flow.id, report)
                return None
            case steps.BeginStart():
                return await self._begin_start(flow)
            case steps.Create():
                return await self._create(flow, now)
            case steps.RollBack():
                return await self._roll_back(flow, observed.claimed, now)
            case steps.Take(step=step):
                return await self._take(flow, step, observed, now)
            case steps.Cordon(worker_id=worker_id):
                async with self._holding(flow) as tx:
                    is_ours = await worker_lifecycle_sql.cordon(tx, worker_id)
                    return await self._save(tx, changes.cordoned(flow, is_ours=is_ours, lease=self.holder))
            case steps.BindRetired():
                async with self._holding(flow) as tx:
                    async with self._calls("bind the retired queue"):
                        await self._bind_retired(flow)
                    return await self._save(tx, changes.retired_bound(flow, lease=self.holder))
            case steps.Unbind():
                return await self._unbind(flow)
            case steps.Drain(queue=queue):
                return await self._drain(flow, queue)
            case steps.Delete(queues=queues):
                return await self._delete(flow, queues)
            case steps.ListAsLeaked(queues=names):
                async with self._holding(flow) as tx:
                    after = await self._save(tx, changes.leaked(flow, names, lease=self.holder))
                log.error("flow.queue_leaked", flow=flow.id, queues=list(names), error=flow.last_error)
                return after
            case steps.Forget(queues=names):
                async with self._holding(flow) as tx:
                    return await self._save(tx, changes.forgotten(flow, names, lease=self.holder))
            case steps.Abort(binds=binds):
                await self._abort(flow, observed.claimed, binds=binds, now=now)
                return None
            case steps.Rebind():
                await self._make_again(flow, observed.claimed)
                return None
            case steps.Release():
                async with self._holding(flow) as tx:
                    async with self._calls("unbind the retired queue"):
                        await self._unbind_retired(flow)
                    await self._save(tx, changes.released(flow, lease=self.holder))
                return None
            case never:
                assert_never(never)

    async def _begin_start(self, flow: Flow) -> Flow:
        try:
            async with self._holding(flow) as tx:
                async with self._calls("look for queues"):
                    counts = {name: await self._backend.count(name) for name in flow.queue_names}
                existing = [name for name, found in counts.items() if found is not None]
                return await self._save(tx, changes.begun(flow, existing=existing, lease=self.holder))
        except (LeaseLost, FlowChanged, Contended):
            raise
        except Unavailable as error:
            return await self._fail_start(flow, error)

    async def _create(self, flow: Flow, now: datetime) -> Flow | None:
        try:
            async with self._holding(flow) as tx:
                async with self._calls("create queues"):
                    for queue in (*flow.shared, *flow.queues):
                        for topic in queue.topics:
                            await self._backend.create_queue(topic, queue.name, **queue.properties)
                    if flow.is_retired_bound:
                        await self._bind_spares(flow, ())
                        await self._unbind_retired(flow)
                if flow.worker_id is not None:
                    # Of an earlier stop: its worker may wait for the queues, and until then it has not returned.
                    await worker_lifecycle_sql.uncordon(tx, flow.worker_id)
                await self._save(tx, changes.activated(flow, lease=self.holder, now=now))
        except (LeaseLost, FlowChanged, Contended):
            raise
        except (QueueDiffers, Unavailable) as error:
            return await self._fail_start(flow, error)
        log.info("flow.started", flow=flow.id, blueprint=flow.blueprint, made=list(flow.made))
        return None

    async def _fail_start(self, flow: Flow, error: Exception) -> Flow:
        """What was made is deleted by the next action, also when the broker answers only later."""
        log.error("flow.start_failed", flow=flow.id, error=str(error))
        async with self._holding(flow) as tx:
            return await self._save(tx, changes.reported(flow, str(error)))

    async def _roll_back(self, flow: Flow, claimed: Collection[str], now: datetime) -> Flow:
        left: list[str] = []
        async with self._holding(flow) as tx:
            async with self._calls("delete queues of a start that failed"):
                for name in flow.made:
                    if name in claimed:
                        continue
                    try:
                        await self._backend.delete_queue(flow.queue(name).topics[0], name)
                    except QueueInUse:
                        left.append(name)
            error = flow.last_error or "the process that started it ended before it was active"
            after = await self._save(
                tx, changes.rolled_back(flow, left=left, error=error, lease=self.holder, now=now)
            )
        log.warning("flow.rolled_back", flow=flow.id, queues=list(flow.made), leaked=left, error=error)
        return after

    async def _take(self, flow: Flow, step: StopStep, observed: FlowObservation, now: datetime) -> Flow:
        async with self._holding(flow) as tx:
            after = await self._save(tx, changes.taken(flow, step, observed, lease=self.holder, now=now))
        if step is StopStep.STOPPED:
            log.info("flow.stopped", flow=flow.id, leaked=list(flow.leaked))
        else:
            log.info("flow.step_taken", flow=flow.id, step=step.value)
        return after

    async def _unbind(self, flow: Flow) -> Flow | None:
        async with self._holding(flow) as tx:
            if await self._is_used_again(tx, flow):
                return None
            async with self._calls("unbind the queues of a flow"):
                # First, and again: an unbind of an earlier leader may have come late.
                await self._bind_retired(flow)
                for name in flow.queue_names:
                    counts = await self._backend.count(name)
                    if counts is not None and counts.consumers:
                        return None
                for queue in flow.queues:
                    for topic in queue.topics:
                        await self._unbind_both(topic, queue.name)
            # After the unbind: what was dispatched before may be in the flow's own queue.
            now = await database_time(tx)
            return await self._save(tx, changes.unbound(flow, lease=self.holder, now=now))

    async def _drain(self, flow: Flow, queue: FlowQueue) -> Flow | None:
        latest = flow

        async def note(part: Drained) -> None:
            nonlocal latest
            if not (part.archived or part.beyond_limit):
                return
            async with self._holding(latest) as tx:
                latest = await self._save(
                    tx,
                    changes.drained(
                        latest, archived=part.archived, beyond_limit=part.beyond_limit, lease=self.holder
                    ),
                )

        try:
            drained = await self._drainer.drain(
                queue.name,
                self.stop,
                worker_id=flow.worker_id,
                is_archive=queue.contents is Contents.ARCHIVE,
                records_left=max(0, self._options.archive_limit - flow.archived),
                note=note,
            )
        except QueueMissing:
            return latest
        if drained.why_not is not None:
            await self.report(flow.id, f"{queue.name} is not drained: {drained.why_not}")
            return None
        return latest if drained.messages else None

    async def _delete(self, flow: Flow, queues: Sequence[FlowQueue]) -> Flow | None:
        errors: list[str] = []
        async with self._holding(flow) as tx:
            if flow.worker_id is not None:
                # Registration updates this row before it declares: it waits until the deletes are done.
                await worker_lifecycle_sql.lock_worker(tx, flow.worker_id)
            if await self._is_used_again(tx, flow):
                return flow
            async with self._calls("delete the queues of a flow"):
                if flow.is_retired_bound:
                    await self._bind_retired(flow)
                for queue in queues:
                    try:
                        await self._backend.delete_queue(queue.topics[0], queue.name)
                    except (QueueInUse, BrokerRightsMissing) as error:
                        errors.append(str(error))
            now = await database_time(tx)
            after = await self._save(tx, changes.tried_to_delete(flow, errors, lease=self.holder, now=now))
        log.info("flow.queues_deleted", flow=flow.id, queues=[queue.name for queue in queues], errors=errors)
        return after

    async def _abort(self, flow: Flow, claimed: Collection[str], *, binds: bool, now: datetime) -> None:
        made: list[str] = []
        async with self._holding(flow) as tx:
            if binds:
                async with self._calls("bind the queues of a worker that has returned"):
                    made = await self._ensure(flow, claimed)
                    await self._bind_spares(flow, claimed)
                    # After its own queue is bound: a message may then be delivered twice, and is never lost.
                    if flow.is_retired_bound:
                        await self._unbind_retired(flow)
            if flow.has_cordoned and flow.worker_id is not None:
                await worker_lifecycle_sql.uncordon(tx, flow.worker_id)
            await self._save(tx, changes.aborted(flow, made_again=made, lease=self.holder, now=now))
        log.warning("flow.stop_aborted", flow=flow.id, worker_id=flow.worker_id, made_again=made)

    async def _make_again(self, flow: Flow, claimed: Collection[str]) -> None:
        async with self._holding(flow) as tx:
            async with self._calls("make the bindings of a flow again"):
                made = await self._ensure(flow, claimed)
                if flow.aborted_at is not None:
                    await self._bind_spares(flow, claimed)
            if made:
                await self._save(tx, changes.reported(flow, changes.restart_advice(flow, made)))
        if made:
            log.warning("flow.queues_made_again", flow=flow.id, queues=made)

    async def apply_again(self, flow: Flow) -> None:
        """What the broker may have lost, for a flow that is not being changed."""
        if flow.status is FlowStatus.ACTIVE:
            await self._make_again(flow, ())
            return
        async with self._holding(flow), self._calls("bind the retired queue"):
            await self._bind_retired(flow)

    async def _is_used_again(self, tx: Transaction, flow: Flow) -> bool:
        """The worker has returned since it was observed."""
        return steps.has_returned(flow, await self._observer.read_worker(tx, flow))

    async def _ensure(self, flow: Flow, claimed: Collection[str]) -> list[str]:
        """Returns the queues that were missing."""
        return [
            queue.name
            for queue in (*flow.shared, *flow.queues)
            if queue.name not in claimed
            for topic in queue.topics
            if await self._backend.ensure_queue(topic, queue.name, **queue.properties)
        ]

    async def _bind_spares(self, flow: Flow, claimed: Collection[str]) -> None:
        """They stay until the next stop of the queue: they change nothing else."""
        for queue in flow.queues:
            if queue.name not in claimed:
                for topic in queue.topics:
                    await self._backend.bind(topic, queue.name, arguments=SPARE)

    async def _bind_retired(self, flow: Flow) -> None:
        for topic in flow.own_topics:
            await self._backend.ensure_queue(topic, RETIRED_QUEUE)
            await self._backend.bind(topic, RETIRED_QUEUE, arguments=SPARE)

    async def _unbind_retired(self, flow: Flow) -> None:
        for topic in flow.own_topics:
            await self._unbind_both(topic, RETIRED_QUEUE)

    async def _unbind_both(self, topic: str, queue: str) -> None:
        await self._backend.unbind(topic, queue)
        await self._backend.unbind(topic, queue, arguments=SPARE)

    async def report(self, flow_id: str, error: str) -> None:
        """Best effort: it explains a flow that does not go on, and changes nothing."""
        error = changes.shortened(error)
        try:
            async with self._database.transaction() as tx:
                flow = await flows_sql.read_flow(tx, flow_id)
                # While a start is rolled back, the error is its reason.
                if flow is None or flow.status is FlowStatus.STARTING or flow.last_error == error:
                    return
                await self._leadership.fence(tx)
                if not await flows_sql.save(tx, changes.reported(flow, error)):
                    return
        except (Unavailable, Contended):
            return
        log.warning("flow.waiting", flow=flow_id, step=flow.step, error=error)

    @asynccontextmanager
    async def _holding(self, flow: Flow) -> AsyncIterator[Transaction]:
        """A transaction that holds the lease and this version of the record. Raises `FlowChanged`, `LeaseLost`."""
        async with self._database.transaction(statement_timeout_ms=_STATEMENT_TIMEOUT_MS) as tx:
            await self._leadership.fence(tx)
            if not await flows_sql.lock_flow(tx, flow):
                raise FlowChanged
            yield tx

    async def _save(self, tx: Transaction, flow: Flow) -> Flow:
        if not await flows_sql.save(tx, flow):
            raise FlowChanged
        # Late in the transaction: transactions that add an event wait for each other.
        await events_sql.record_event(
            tx,
            topic=events.Topic.FLOWS,
            kind=events.FLOW_CHANGED,
            subject=flow.id,
            detail=flow.status if flow.step is None else f"{flow.status}, step {flow.step}",
            replica=self.holder.partition(" ")[0],
        )
        return replace(flow, version=flow.version + 1)

    @asynccontextmanager
    async def _calls(self, doing: str) -> AsyncIterator[None]:
        """Calls to the broker, with one time limit. Those that did not end by then have no late effect."""
        try:
            async with bounded(BROKER_SECONDS):
                yield
        except TimeoutError as error:
            raise Unavailable("broker", f"{doing}: no answer within {BROKER_SECONDS:g} s") from error
