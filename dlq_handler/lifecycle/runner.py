"""Act on the records of flows: start, stop, abort, clean up. Runs on the leader.

A start that another process began is rolled back, a stop continues at its step, and the queues of active flows are
made again when a replica becomes the leader.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership, LeaseLost
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host.flow_workers_sql import read_returns
from dlq_handler.host.worker import AvailabilityPolicy
from dlq_handler.lifecycle import flows_sql
from dlq_handler.lifecycle.flow import Flow
from dlq_handler.lifecycle.flow_actions import FlowActions, FlowChanged
from dlq_handler.lifecycle.next_step import next_step
from dlq_handler.lifecycle.observe import FlowObserver
from dlq_handler.lifecycle.options import LifecycleOptions
from dlq_handler.loop import every

REAPPLY_SECONDS = 600.0
"""Interval at which the queues and bindings of all flows are made again, in case the broker has lost them."""

_MOST_ACTIONS = 30
"""For one flow in one tick: then the others have their turn."""


class FlowRunner:
    def __init__(
        self,
        database: Database,
        leadership: Leadership,
        observer: FlowObserver,
        actions: FlowActions,
        options: LifecycleOptions,
        *,
        availability: AvailabilityPolicy,
    ) -> None:
        self._database, self._leadership = database, leadership
        self._observer, self._actions, self._options = observer, actions, options
        self._availability = availability
        self._stop = asyncio.Event()
        self._applied_at = float("-inf")

    async def run(self, stop: asyncio.Event) -> None:
        self._stop = self._actions.stop = stop
        wake = asyncio.Event()
        self._leadership.wake_when_taken(wake)
        try:
            await every(self._options.interval_seconds, self.tick, stop, name="flow-runner", wake=wake)
        finally:
            await self._actions.close()

    async def tick(self) -> None:
        """Do for every flow what can be done now. Raises the last error, after the other flows had their turn."""
        if not self._leadership.is_leader:
            self._applied_at = float("-inf")
            return
        failures: list[Exception] = []
        if monotonic_seconds() - self._applied_at >= REAPPLY_SECONDS:
            await self._for_each(await self._bound(), self._actions.apply_again, failures)
            self._applied_at = monotonic_seconds() if not failures else float("-inf")
        await self._for_each(await self._due(), self._advance, failures)
        if failures:
            raise failures[-1]

    async def _for_each(
        self, flows: Sequence[Flow], work: Callable[[Flow], Awaitable[None]], failures: list[Exception]
    ) -> None:
        for flow in flows:
            if self._stop.is_set() or not self._leadership.is_leader:
                return
            try:
                await work(flow)
            except FlowChanged:
                continue
            except LeaseLost:
                raise
            except (Unavailable, Contended) as error:
                # Perhaps only this flow fails: the others do not wait for it.
                failures.append(error)
                await self._actions.report(flow.id, str(error))

    async def _bound(self) -> list[Flow]:
        async with self._database.transaction() as tx:
            return await flows_sql.bound_flows(tx)

    async def _due(self) -> list[Flow]:
        async with self._database.transaction() as tx:
            live = await flows_sql.due_live(tx)
            watched = await flows_sql.retired_workers(tx)
            found = await read_returns(tx, watched, self._availability)
            return live + await flows_sql.due_stopped(tx, returned=found.returned, gone=found.gone)

    async def _advance(self, flow: Flow) -> None:
        for _ in range(_MOST_ACTIONS):
            observed, now = await self._observer.observe(flow)
            action = next_step(flow, observed, self._options, now=now, lease=self._actions.holder)
            after = await self._actions.perform(flow, action, observed, now)
            if after is None or self._stop.is_set():
                return
            flow = after
