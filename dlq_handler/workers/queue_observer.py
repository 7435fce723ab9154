"""Observe the workers' queues on the broker: consumers, ready and unacknowledged messages, TTL.

Promises: creates and changes nothing; a worker that could not be asked about is left out of the answer.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from dlq_handler.broker.admin import queue_probe
from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.api_rows import declared_ttl_ms
from dlq_handler.broker.admin.management_api import ManagementApi, QueueStatistics
from dlq_handler.broker.admin.queue_counter import UNKNOWN_QUEUE, QueueCounter
from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.clock import monotonic_seconds
from dlq_handler.errors import Unavailable
from dlq_handler.health import locked
from dlq_handler.host.worker import QueueObservation, WorkerQueueNames
from dlq_handler.loop import pause_after
from dlq_handler.workers.refusal_budget import RefusalBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ttl:
    ms: int | None = None
    """None: the queue has none, if `is_known`."""
    is_known: bool = True


UNKNOWN_TTL = _Ttl(is_known=False)
COUNTS_KEPT_SECONDS = 2.0
FLEET_COUNTS_KEPT_SECONDS = 140.0
"""Maximum age of the counts of a large fleet that the view takes over. The worker watch counts every 120 s at least."""
TTL_KEPT_SECONDS = 600.0
"""A TTL cannot change while its queue lives, and each probe leaves a line in the broker's log."""
API_PAUSE_SECONDS = 60.0
"""Before the management API is asked again after it failed."""
MOST_WITH_STATISTICS = 500
"""For pages and commands, statistics of more queues are not read, and their counts are not read again."""
STATISTICS_SECONDS = 5.0
TTLS_KEPT_SECONDS = 60.0
MOST_TRIED = 10
"""Maximum number of workers among which dlq-handler searches for a queue whose TTL can be probed."""

Fact = TypeVar("Fact")


class _Kept(Generic[Fact]):
    """Facts by worker, each for a while. None is a fact too: a worker without a known fact is not in the answer."""

    def __init__(self) -> None:
        self._facts: dict[int, tuple[float, Fact]] = {}

    def fresh(self, worker_ids: Iterable[int], now: float) -> dict[int, Fact]:
        """Also deletes old facts, or those of workers that are not asked for any more would stay for ever."""
        self._facts = {one: kept for one, kept in self._facts.items() if now < kept[0]}
        return {one: self._facts[one][1] for one in worker_ids if one in self._facts}

    def keep(self, facts: Mapping[int, Fact], *, until: float) -> None:
        self._facts.update({one: (until, fact) for one, fact in facts.items()})


class WorkerQueueObserver:
    """One for all services of a process, so that they share its answers."""

    def __init__(
        self,
        admin: AdminConnection,
        *,
        api: ManagementApi,
        names: WorkerQueueNames,
        confirm_after_seconds: float = 30.0,
        probes_ttl: bool = True,
        counts_kept_seconds: float = COUNTS_KEPT_SECONDS,
        queues: QueueCounter | None = None,
        now: Callable[[], float] = monotonic_seconds,
    ) -> None:
        """`api` may be missing. `confirm_after_seconds`: between the two checks that a decision needs.

        `probes_ttl`: what `observe` finds decides about executions, so each queue is asked, and its TTL probed.
        `queues` counts for everything that decides nothing, and spares the broker's log; without it all are asked.
        """
        self._queues = queues
        self._found: set[str] = set()
        self._admin, self._api, self._names, self._now = admin, api, names, now
        self._probes_ttl, self._counts_kept_seconds = probes_ttl, counts_kept_seconds
        self._budget = RefusalBudget(now, confirm_after_seconds=confirm_after_seconds)
        self._counts = _Kept[QueueCounts | None]()
        self._fleet_counts = _Kept[QueueCounts | None]()
        self._statistics = _Kept[QueueStatistics]()
        self._ttls = _Kept[_Ttl]()
        self._longest_ttl_ms: int | None = None
        self._api_asked_again_at = 0.0
        self._ttls_asked_again_at = 0.0
        # Two callers at once would ask everything twice: the second waits, and uses the answers of the first.
        self._turn = asyncio.Lock()
        self.broker_error: str | None = None
        """Why the last check could not ask the broker; None when it could."""
        self.api_error: str | None = None
        """The same for the management API."""

    async def count(self, worker_ids: Collection[int]) -> dict[int, QueueCounts | None]:
        """Consumers and ready by AMQP alone. None: no such queue. A worker that is left out is unknown."""
        async with locked(self._turn):
            counted = await self._count(worker_ids, is_quiet=True)
        if len(worker_ids) > MOST_WITH_STATISTICS:
            self._fleet_counts.keep(counted, until=self._now() + FLEET_COUNTS_KEPT_SECONDS)
        return counted

    async def count_queue(self, queue: str) -> QueueCounts | None:
        """Any queue. None: no such queue."""
        return await queue_probe.count_queue(self._admin, queue)

    async def observe_fleet(self, worker_ids: Collection[int]) -> dict[int, QueueObservation | None]:
        """For the view: as `observe_quietly`, but a large fleet as `count` last found it. To count thousands of queues
        again costs the broker and this process seconds.
        """
        counted = self._fleet_counts.fresh(worker_ids, self._now())
        if not counted or len(worker_ids) <= MOST_WITH_STATISTICS:
            return await self.observe_quietly(worker_ids)
        async with locked(self._turn):
            counted |= await self._count([one for one in worker_ids if one not in counted], is_quiet=True)
        ttls = self._ttls.fresh(counted, self._now())
        return {
            one: None if counts is None else _observation(counts, None, ttls.get(one, UNKNOWN_TTL))
            for one, counts in counted.items()
        }

    async def observe(self, worker_ids: Collection[int]) -> dict[int, QueueObservation | None]:
        """All that can be known. None: no such queue. A worker that is left out is unknown."""
        return await self._observe(worker_ids, is_quiet=not self._probes_ttl)

    async def observe_quietly(self, worker_ids: Collection[int]) -> dict[int, QueueObservation | None]:
        """The same for pages and commands, which decide nothing: probes no TTL, and asks about no missing queue."""
        return await self._observe(worker_ids, is_quiet=True)

    def queue_of(self, worker_id: int) -> str:
        return self._names.queue(worker_id)

    def unknown_explanation(self, worker_id: int) -> str:
        """The reason why a quiet check left this worker out while the broker answered."""
        return (
            UNKNOWN_QUEUE
            if self._queues is None
            else self._queues.unknown_explanation(self._names.queue(worker_id))
        )

    async def _observe(
        self, worker_ids: Collection[int], *, is_quiet: bool
    ) -> dict[int, QueueObservation | None]:
        async with locked(self._turn):
            counted = await self._count(worker_ids, is_quiet=is_quiet)
            present = [one for one, counts in counted.items() if counts is not None]
            statistics = await self._read_statistics(present, is_quiet=is_quiet)
            ttls = await self._learn_ttls(present, statistics, is_quiet=is_quiet)
        return {
            one: None if counts is None else _observation(counts, statistics.get(one), ttls[one])
            for one, counts in counted.items()
            if counts is None or one in ttls
        }

    async def longest_ttl_ms(self, worker_ids: Sequence[int] = ()) -> int | None:
        """Of all worker queues that this process ever saw, also deleted ones: what counts where the queue of a message
        or its TTL is unknown. 0: they have none. None: unknown.

        A process that has just started has seen none. Without the management API it probes one queue of these workers.
        """
        async with locked(self._turn):
            await self._read_all_ttls()
            if self._longest_ttl_ms is None and self._probes_ttl:
                counted = await self._count(worker_ids[:MOST_TRIED], is_quiet=True)
                present = [one for one, counts in counted.items() if counts is not None]
                await self._learn_ttls(present[:1], {}, is_quiet=False)
        return self._longest_ttl_ms

    def _note_ttl(self, ttl_ms: int | None) -> None:
        self._longest_ttl_ms = max(ttl_ms or 0, self._longest_ttl_ms or 0)

    async def _count(self, worker_ids: Collection[int], *, is_quiet: bool) -> dict[int, QueueCounts | None]:
        known = self._counts.fresh(worker_ids, self._now())
        queues = {self._names.queue(one): one for one in worker_ids if one not in known}
        if not queues:
            return known
        try:
            answer = await self._ask_broker(queues, is_quiet=is_quiet)
        except Unavailable as error:
            self.broker_error, self._fleet_counts = error.what, _Kept()
            return known
        self.broker_error = None
        counted = {queues[queue]: counts for queue, counts in answer.items()}
        # A queue that was missing minutes ago is not evidence for a decision.
        kept = {one: counts for one, counts in counted.items() if counts is not None or not is_quiet}
        self._counts.keep(kept, until=self._now() + self._counts_kept_seconds)
        return known | counted

    async def _ask_broker(
        self, queues: Collection[str], *, is_quiet: bool
    ) -> Mapping[str, QueueCounts | None]:
        if is_quiet:
            if self._queues is None:
                return await queue_probe.count_all(self._admin, queues)
            return await self._queues.count_all(queues)
        present = sorted(self._found.intersection(queues))
        answer = await self._ask(present, refusals=self._budget.places_for_found)
        # Queues that were found before come first, so that missing ones do not keep them unknown.
        due = self._budget.due(queue for queue in queues if queue not in self._found and queue not in present)
        answer |= await self._ask(due, refusals=self._budget.places)
        if self._queues is not None:
            self._queues.learn(answer)
            # A queue that was declared since its last refusal is found by the questions that spare the broker's log.
            unasked = [queue for queue in queues if queue not in answer]
            quiet = await self._queues.count_all(unasked) if unasked else {}
            found = {queue: counts for queue, counts in quiet.items() if counts is not None}
            self._found |= found.keys()
            answer |= found
            # A queue that did not exist seconds ago holds no message that is older than that. Without the list, the
            # executions of a worker whose queue was deleted would stay undecided for ten minutes.
            others = [queue for queue in unasked if queue not in found]
            answer |= dict.fromkeys(await self._queues.missing_in_list(others))
        return answer

    async def _ask(self, queues: Sequence[str], *, refusals: int) -> dict[str, QueueCounts | None]:
        if not queues:
            return {}
        answer, left = await queue_probe.count_until_refused(self._admin, queues, refusals=refusals)
        found = {queue for queue, counts in answer.items() if counts is not None}
        refused = set(queues).difference(left, found)
        self._found = self._found.difference(refused) | found
        self._budget.spend_on(refused)
        return answer

    async def _read_statistics(
        self, worker_ids: Collection[int], *, is_quiet: bool
    ) -> dict[int, QueueStatistics]:
        """A worker that is left out is unknown. In a large fleet a quiet question reads none: it costs the broker too
        much.
        """
        known = self._statistics.fresh(worker_ids, self._now())
        queues = {self._names.queue(one): one for one in worker_ids if one not in known}
        if not queues or (is_quiet and len(worker_ids) > MOST_WITH_STATISTICS):
            return known
        began = self._now()
        if began < self._api_asked_again_at:
            return known
        try:
            answer = await self._api.queue_statistics(queues, within_seconds=STATISTICS_SECONDS)
        except Unavailable as error:
            self._note_api_error(error)
            return known
        self.api_error = None
        found = {queues[queue]: statistics for queue, statistics in answer.items()}
        took_seconds = self._now() - began
        kept_seconds = max(self._counts_kept_seconds, pause_after(took_seconds) if is_quiet else 0.0)
        self._statistics.keep(found, until=self._now() + kept_seconds)
        return known | found

    async def _read_all_ttls(self) -> None:
        began = self._now()
        if began < max(self._api_asked_again_at, self._ttls_asked_again_at):
            return
        try:
            answer = await self._api.queue_arguments()
        except Unavailable as error:
            self._note_api_error(error)
            return
        self.api_error = None
        self._ttls_asked_again_at = self._now() + max(TTLS_KEPT_SECONDS, pause_after(self._now() - began))
        self._note_ttl(None)
        for queue, arguments in answer.items():
            if self._names.owner_of(queue) is not None:
                self._note_ttl(declared_ttl_ms(arguments))

    def _note_api_error(self, error: Unavailable) -> None:
        self.api_error = str(error)
        self._api_asked_again_at = self._now() + API_PAUSE_SECONDS

    async def _learn_ttls(
        self, worker_ids: Collection[int], statistics: Mapping[int, QueueStatistics], *, is_quiet: bool
    ) -> dict[int, _Ttl]:
        known = self._ttls.fresh(worker_ids, self._now())
        for one in worker_ids:
            if read := statistics.get(one):
                known[one] = _Ttl(ms=read.ttl_ms)
                self._note_ttl(read.ttl_ms)
        queues = {self._names.queue(one): one for one in worker_ids if one not in known}
        if is_quiet:
            return known | dict.fromkeys(queues.values(), UNKNOWN_TTL)
        asked = list(islice(queues, self._budget.places))
        self._budget.spend(len(asked))
        try:
            answer = await queue_probe.probe_all_ttl_ms(self._admin, asked)
        except Unavailable as error:
            # Left out: taken for a queue without a TTL, an execution could be failed whose message still waits.
            self.broker_error = error.what
            return known
        probed = {
            one: _Ttl(ms=answer[queue]) if queue in answer else UNKNOWN_TTL for queue, one in queues.items()
        }
        for ttl in probed.values():
            if ttl.is_known:
                self._note_ttl(ttl.ms)
        self._ttls.keep(
            {queues[queue]: probed[queues[queue]] for queue in asked},
            until=self._now() + TTL_KEPT_SECONDS,
        )
        return known | probed


def _observation(counts: QueueCounts, statistics: QueueStatistics | None, ttl: _Ttl) -> QueueObservation:
    """What AMQP says is of this instant; the API's numbers are some seconds old.

    That is sufficient to decide if a dispatch of minutes ago has left the queue: it was in there when the numbers were
    taken, as ready or as unacked, or it had left by then. The two must be of one moment, though: one delivered
    since then is not ready by AMQP any more and not unacked by the API yet. So the older count of ready ones is not
    forgotten, and "ready + unacked = 0" holds only if it did for both.
    """
    return QueueObservation(
        consumers=counts.consumers,
        ready=counts.ready if statistics is None else max(counts.ready, statistics.ready),
        unacked=None if statistics is None else statistics.unacked,
        ttl_ms=ttl.ms,
        has_no_ttl=ttl.is_known and ttl.ms is None,
    )
