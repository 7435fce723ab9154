"""Send some canaries and wait for them: takes a few seconds, and a sidecar that consumes the intake queue.

The doctor takes nothing from that queue itself, and a queue of its own would prove a binding of its own. So without a
sidecar the answer is that nobody can tell.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_probe import QueueCounts, count_queue
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.diagnosis import doctor_lines as says
from dlq_handler.diagnosis.observation import Observation
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.topology import canary_sql as store
from dlq_handler.topology.canary_queue import CanaryRefused
from dlq_handler.topology.canary_sender import CanarySender
from dlq_handler.topology.consumers import Consumers
from dlq_handler.topology.decide_canary import CanaryPolicy, IntakeView, Probe, choose_due, decide_canaries

LOOK_SECONDS = 0.2


class CanaryExaminer:
    def __init__(
        self,
        database: Database,
        link: AdminConnection,
        sender: CanarySender,
        policy: CanaryPolicy,
        *,
        queue: str,
        own_prefix: str,
        is_enabled: bool,
        say: Callable[[str], None],
    ) -> None:
        self._database, self._link, self._sender, self._policy = database, link, sender, policy
        self._queue, self._own_prefix, self._is_enabled, self._say = queue, own_prefix, is_enabled, say

    async def examine(self, workers: Collection[int], taken: Consumers | None) -> Observation:
        """`workers`: those that reported lately; `taken`: who consumes the intake queue."""
        if not self._is_enabled:
            return says.CANARY.unknown("there is none", "set dlq_handler.canary.enabled: true")
        if not workers:
            return says.canary((), "there is no worker whose key it could carry")
        if taken is None or taken.count == 0:
            return says.canary((), f"no sidecar consumes {self._queue!r}")
        try:
            known = await store.read_probes(self._database, self._queue)
            asked = choose_due(workers, known, CanaryPolicy(interval_seconds=0, limit_seconds=0))
            started, incarnation = monotonic_seconds(), await self._link.open()
            sent = await self._sender.send(asked)
            probes = await self._wait(sent)
            counts = await count_queue(self._link, self._queue)
        except (Unavailable, Contended, CanaryRefused) as error:
            return says.canary((), str(error))
        # A consumer that was there before and after was there in between, if the broker was.
        was_up = self._link.incarnation == incarnation
        view = self._view(taken, counts if was_up else None, monotonic_seconds() - started)
        return says.canary(decide_canaries(probes, asked, view, self._policy, queue=self._queue))

    async def _wait(self, sent: Sequence[UUID]) -> list[Probe]:
        """Until all have arrived, or the last one is overdue."""
        told = False
        while True:
            probes = await store.read_probes(self._database, self._queue, among=sent)
            waiting = [probe for probe in probes if probe.took_seconds is None]
            if all(probe.is_overdue(self._policy.limit_seconds) for probe in waiting):
                return probes
            if not told:
                limit = max(probe.ttl_seconds for probe in waiting) + self._policy.limit_seconds
                self._say(f"sent {len(sent)} canary message(s), waiting for them for up to {limit:g} s")
                told = True
            await asyncio.sleep(LOOK_SECONDS)

    def _view(self, taken: Consumers, counts: QueueCounts | None, took_seconds: float) -> IntakeView:
        is_consumed = counts is not None and counts.consumers > 0
        others = tuple(tag for tag in taken.tags or () if not tag.startswith(self._own_prefix))
        return IntakeView(
            consuming_seconds=took_seconds if is_consumed else 0.0,
            waiting=None if counts is None else counts.ready,
            others=others,
            unseen=taken.count if taken.tags is None else 0,
        )
