"""Keep every worker's routing key bound to the intake queue, from a few seconds after the worker registers.

Compares the whole set of worker ids each time ("ids above the last one" misses rows that commit late), and builds
bindings only for the difference. Applies everything again after a reconnect, on request, and every few minutes: so a
broker that lost its bindings gets them back. While one of the two servers is unavailable, existing bindings stay.
"""

import asyncio
from collections.abc import Callable, Collection

import structlog

from dlq_handler.broker.admin import queue_probe
from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_probe import existing_queues
from dlq_handler.clock import monotonic_seconds
from dlq_handler.errors import Unavailable
from dlq_handler.loop import every
from dlq_handler.safety.state_reader import StateReader
from dlq_handler.topology.apply import apply, bind, unbind
from dlq_handler.topology.blueprint import Blueprint, bindings_of_workers
from dlq_handler.topology.options import TopologyOptions

log = structlog.get_logger()

_LOGGED_IDS = 20


class TopologyKeeper:
    """One per process. Replicas do the same work beside each other; every step of it may be repeated."""

    def __init__(
        self,
        admin: AdminConnection,
        blueprint: Blueprint,
        workers: StateReader,
        options: TopologyOptions,
        *,
        interval_seconds: float,
        now: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._admin, self._blueprint, self._workers, self._options = admin, blueprint, workers, options
        self._interval_seconds, self._now = interval_seconds, now
        # None until the database has answered once: while the workers are unknown, none is unbound.
        self._registered: frozenset[int] | None = None
        self._compared: frozenset[int] | None = None
        """The registered workers to which the bindings were last brought."""
        self._with_queue: frozenset[int] = frozenset()
        """Workers without a row whose queue still exists: messages can expire there."""
        self._applied_incarnation: int | None = None
        self._applied_at = float("-inf")
        self._requests = self._requests_done = 0
        self.bound_workers: frozenset[int] = frozenset()

    def reapply_now(self) -> None:
        """Make the next tick apply everything: bindings may be missing on the broker."""
        self._requests += 1

    async def run(self, stop: asyncio.Event) -> None:
        wake = asyncio.Event()
        self._workers.wake_when_changed(wake)
        await every(self._interval_seconds, self.tick, stop, name="topology-keeper", wake=wake)

    async def tick(self) -> None:
        database_error: Unavailable | None = None
        try:
            self._registered = await self._workers.worker_ids()
        except Unavailable as error:
            # A broker that lost its bindings meanwhile still gets back those of the known workers.
            database_error = error
        incarnation = await self._admin.open()
        # A deleted exchange takes every binding with it, and no consumer notices that.
        if self._is_stale(incarnation) or not await queue_probe.exchange_exists(
            self._admin, self._blueprint.dead_letter_exchange
        ):
            await self._apply_all(incarnation)
        elif self._registered is not self._compared:
            await self._apply_difference()
        if database_error is not None:
            raise database_error

    def _is_stale(self, incarnation: int) -> bool:
        return (
            incarnation != self._applied_incarnation
            or self._requests != self._requests_done
            or self._now() - self._applied_at >= self._options.reapply_interval_seconds
        )

    async def _apply_all(self, incarnation: int) -> None:
        requests, registered = self._requests, self._registered
        self._with_queue = frozenset()
        wanted = await self._wanted_workers()
        result = await apply(self._admin, self._blueprint, wanted)
        await self._unbind(self.bound_workers - wanted)
        self.bound_workers, self._compared = wanted, registered
        is_new_connection = incarnation != self._applied_incarnation
        self._applied_incarnation, self._requests_done = incarnation, requests
        self._applied_at = self._now()
        # A repeated application that finds everything in place changes nothing, and is no news.
        if is_new_connection or result.made:
            log.info(
                "topology.applied",
                workers=len(wanted),
                made=list(result.made),
                intake_queue=self._blueprint.intake_queue,
                dead_letter_exchange_type=result.dead_letter_exchange_type,
            )

    async def _apply_difference(self) -> None:
        registered = self._registered
        wanted = await self._wanted_workers()
        added, removed = wanted - self.bound_workers, self.bound_workers - wanted
        if added or removed:
            await bind(self._admin, self._blueprint, bindings_of_workers(self._blueprint, added))
            await self._unbind(removed)
            log.info(
                "topology.bindings_changed",
                workers=len(wanted),
                came=sorted(added)[:_LOGGED_IDS],
                went=sorted(removed)[:_LOGGED_IDS],
            )
        self.bound_workers, self._compared = wanted, registered

    async def _unbind(self, workers: Collection[int]) -> None:
        await unbind(self._admin, self._blueprint, bindings_of_workers(self._blueprint, workers))

    async def _wanted_workers(self) -> frozenset[int]:
        """The registered workers, and those without a row that left a queue.

        Such queues are searched once between two full passes: hosts that never delete queues leave thousands behind.
        """
        if self._registered is None:
            return self.bound_workers
        names = self._blueprint.workers
        unregistered = self.bound_workers - self._registered - self._with_queue
        queues = await existing_queues(self._admin, [names.queue(worker) for worker in unregistered])
        self._with_queue |= {worker for worker in unregistered if names.queue(worker) in queues}
        return self._registered | (self.bound_workers & self._with_queue)
