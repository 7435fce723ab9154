"""Keep the topology: every worker's key bound to the intake queue, a few seconds after the worker registers.

Compares the whole set of worker ids each time ("ids above the last one seen" misses rows that commit late),
and applies everything anew after each reconnect, when asked to, and every few minutes, so that a wiped broker
is whole again without anybody's doing. Losing either server only delays it: what is bound stays bound.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from dlq_handler.broker.admin import queue_probe
from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.many_queues import existing_queues
from dlq_handler.clock import monotonic_seconds
from dlq_handler.errors import Unavailable
from dlq_handler.loop import every
from dlq_handler.topology import apply as broker_topology
from dlq_handler.topology.apply import ApplyResult
from dlq_handler.topology.blueprint import Blueprint, Delta, diff, wanted_bindings, workers_to_serve

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperPolicy:
    watch_interval_seconds: float = 2.0
    reapply_interval_seconds: float = 600.0


class TopologyKeeper:
    """One per process. Replicas do the same work beside each other; every step of it may be repeated."""

    def __init__(
        self,
        *,
        link: AdminConnection,
        blueprint: Blueprint,
        worker_ids: Callable[[], Awaitable[frozenset[int]]],
        policy: KeeperPolicy | None = None,
        now: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._link = link
        self._blueprint = blueprint
        self._worker_ids = worker_ids
        self._policy = policy or KeeperPolicy()
        self._now = now
        # None until the database has answered once: not knowing the workers is no reason to unbind one.
        self._registered: frozenset[int] | None = None
        self._served: frozenset[int] = frozenset()
        # Workers whose row is gone, but not their queue.
        self._retired: frozenset[int] = frozenset()
        self._applied_incarnation: int | None = None
        self._asked = self._answered = 0
        self.last_applied_at: float | None = None
        self.last_report: ApplyResult | None = None

    @property
    def bound_workers(self) -> frozenset[int]:
        return self._served

    def reapply_now(self) -> None:
        """Make the next tick apply everything: somebody saw that the broker is not as we left it."""
        self._asked += 1

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._policy.watch_interval_seconds, self.tick, stop, name="topology-keeper")

    async def tick(self) -> None:
        database_away: Unavailable | None = None
        try:
            self._registered = await self._worker_ids()
        except Unavailable as error:
            # A broker that was wiped meanwhile still gets back the bindings of the workers we know of.
            database_away = error
        incarnation = await self._link.open()
        is_stale = (
            incarnation != self._applied_incarnation or self._asked != self._answered or self._is_overdue()
        )
        # Deleted alone, the exchange takes every binding with it, and no consumer hears of that.
        if is_stale or not await queue_probe.exchange_exists(
            self._link, self._blueprint.dead_letter_exchange
        ):
            await self._apply_all(incarnation)
        else:
            await self._apply_delta()
        if database_away is not None:
            raise database_away

    def _is_overdue(self) -> bool:
        applied_at = self.last_applied_at
        return applied_at is None or self._now() - applied_at >= self._policy.reapply_interval_seconds

    async def _apply_all(self, incarnation: int) -> None:
        asked = self._asked
        self._retired = frozenset()
        serve = await self._workers_to_serve()
        report = await broker_topology.apply(self._link, self._blueprint, serve)
        await broker_topology.unbind(self._link, self._blueprint, self._delta(serve).unbinds)
        self._served = serve
        self._applied_incarnation, self._answered = incarnation, asked
        self.last_applied_at, self.last_report = self._now(), report
        log.info(
            "topology.applied",
            workers=len(serve),
            made=list(report.made),
            intake_queue=self._blueprint.intake_queue,
            dead_letter_exchange_type=report.dead_letter_exchange_type,
        )

    async def _apply_delta(self) -> None:
        serve = await self._workers_to_serve()
        delta = self._delta(serve)
        if not delta:
            return
        await broker_topology.bind(self._link, self._blueprint, delta.binds)
        await broker_topology.unbind(self._link, self._blueprint, delta.unbinds)
        log.info(
            "topology.bindings_changed",
            workers=len(serve),
            came=sorted(serve - self._served)[:20],
            went=sorted(self._served - serve)[:20],
        )
        self._served = serve

    def _delta(self, serve: frozenset[int]) -> Delta:
        return diff(wanted_bindings(self._blueprint, serve), wanted_bindings(self._blueprint, self._served))

    async def _workers_to_serve(self) -> frozenset[int]:
        """The registered workers, and those that left a queue.

        Such queues are looked for once per full pass: hosts that never delete queues leave thousands behind.
        """
        if self._registered is None:
            return self._served
        names = self._blueprint.workers
        unseen = self._served - self._registered - self._retired
        queues = await existing_queues(self._link, [names.queue(worker) for worker in unseen])
        self._retired |= {worker for worker in unseen if names.queue(worker) in queues}
        return workers_to_serve(self._registered, self._served, self._retired)
