"""Publish the outbox: each message until it is confirmed, in order per execution.

A new entry comes from memory, leased when it was written. Everything else (left by a crash, put back after a refusal,
written while the relay was behind) is claimed from the table. A message repeats only after a crash, or the loss of the
broker or the database, between its confirm and its mark, and then with the same id.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Sequence

import structlog

from dlq_handler.broker.outgoing import Confirmed, PublishOutcome, Unanswered, Unroutable
from dlq_handler.broker.publisher import Publisher
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.endings import outbox_sql
from dlq_handler.endings.options import OutboxOptions
from dlq_handler.endings.outbox_sql import OutboxEntry, OutboxLease
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host import executions_sql
from dlq_handler.loop import every
from dlq_handler.metrics import Metrics

log = structlog.get_logger()


class OutboxRelay:
    def __init__(
        self,
        database: Database,
        publisher: Publisher,
        options: OutboxOptions,
        *,
        publish_timeout_seconds: float,
        holder: str,
        metrics: Metrics,
    ) -> None:
        self._database, self._publisher, self._options = database, publisher, options
        self._publish_timeout_seconds = publish_timeout_seconds
        self._holder, self._metrics = holder, metrics
        self._held: deque[OutboxEntry] = deque()
        self._unmarked: list[int] = []
        self._next_claim = 0.0
        self._wake = asyncio.Event()

    def lease_for(self, count: int) -> OutboxLease | None:
        """To write so many entries with. None: write them without one; the table can grow, the memory of a replica
        must not.
        """
        return self._lease() if len(self._held) + count <= 4 * self._options.batch_size else None

    def offer(self, entries: Sequence[OutboxEntry]) -> None:
        """Publish committed entries that were written with a lease of this relay."""
        if entries:
            self._held.extend(entries)
            self._wake.set()

    def _lease(self) -> OutboxLease:
        return OutboxLease(
            holder=self._holder, seconds=self._options.lease_seconds, taken_at=monotonic_seconds()
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Relay until `stop`, which must not be set before the last transaction has committed; then flush."""
        await every(
            self._options.poll_interval_seconds, self.tick, stop, name="outbox-relay", wake=self._wake
        )
        await self._flush()

    async def tick(self) -> None:
        await self._mark()
        if self._publisher.is_blocked:
            # A publish started now would hang until the alarm clears, and be delivered after its timeout.
            raise Unavailable("broker", "publishing is blocked by a resource alarm")
        entries = self._take_held() or await self._claim()
        if entries:
            await self._publish(entries)
            self._wake.set()

    async def _claim(self) -> list[OutboxEntry]:
        due = await outbox_sql.claim_due(self._database, self._lease(), limit=self._options.batch_size)
        self._next_claim = monotonic_seconds() + self._options.poll_interval_seconds
        reclaimed = sum(entry.possibly_published for entry in due)
        if reclaimed:
            log.info("outbox_entry.reclaimed", count=reclaimed)
        self._held.extend(await self._without_answered(due))
        return self._take_held()

    def _take_held(self) -> list[OutboxEntry]:
        """The next batch from memory. Empty when the table is due: entries of other replicas must not starve."""
        now = monotonic_seconds()
        if now >= self._next_claim and not self._held_is_full():
            return []
        taken: list[OutboxEntry] = []
        let_go = 0
        while self._held and len(taken) < self._options.batch_size:
            held = self._held.popleft()
            # A lease that could end during the publish is not used: another replica may claim the entry then.
            if held.good_until - now > self._publish_timeout_seconds:
                taken.append(held)
            else:
                let_go += 1
        if let_go:
            log.info("outbox_entry.released", count=let_go)
        return taken

    def _held_is_full(self) -> bool:
        return len(self._held) >= self._options.batch_size

    async def _without_answered(self, entries: Sequence[OutboxEntry]) -> list[OutboxEntry]:
        """Leave out repeats that the host has already answered: a second one would make a second workflow retry."""
        repeats = [entry for entry in entries if entry.possibly_published and entry.message.is_workflow_task]
        ids = [entry.message.execution_id for entry in repeats]
        retried = await executions_sql.already_retried(self._database, ids) if ids else frozenset()
        seen = [entry for entry in repeats if entry.message.execution_id in retried]
        fresh = [entry for entry in entries if entry not in seen]
        if seen:
            log.info(
                "completion_event.withheld", execution_ids=[entry.message.execution_id for entry in seen]
            )
            self._metrics.completion_events.labels("withheld").inc(len(seen))
            await outbox_sql.mark_withheld(self._database, [entry.id for entry in seen])
        return fresh

    async def _publish(self, held: Sequence[OutboxEntry]) -> None:
        try:
            outcomes = await self._publisher.publish([entry.message for entry in held])
        except Unavailable:
            self._held.extendleft(reversed(held))
            raise
        self._unmarked.extend(
            entry.id for entry, outcome in zip(held, outcomes, strict=True) if isinstance(outcome, Confirmed)
        )
        for name, count in Counter(type(outcome).__name__.lower() for outcome in outcomes).items():
            self._metrics.completion_events.labels(name).inc(count)
        await self._mark()
        failed = [
            (entry, outcome)
            for entry, outcome in zip(held, outcomes, strict=True)
            if not isinstance(outcome, Confirmed)
        ]
        if failed:
            await self._put_back(failed)

    async def _mark(self) -> None:
        if self._unmarked:
            # Kept until the mark is through: forgetting them here would publish them again when the lease ends.
            took_seconds = await outbox_sql.mark_confirmed(self._database, self._unmarked)
            self._unmarked = []
            # By the table: an entry that was put back, or left by a crash, has waited before.
            self._metrics.observe_publish_latencies(took_seconds)

    async def _put_back(self, failed: Sequence[tuple[OutboxEntry, PublishOutcome]]) -> None:
        first, outcome = failed[0]
        log.error(
            "completion_event.not_confirmed",
            count=len(failed),
            outcome=type(outcome).__name__.lower(),
            error=outcome.text,
            exchange=first.message.exchange,
            routing_key=first.message.routing_key,
            execution_id=first.message.execution_id,
        )
        await outbox_sql.put_back(
            self._database,
            {entry.id: outcome.text for entry, outcome in failed},
            unroutable=[entry.id for entry, outcome in failed if isinstance(outcome, Unroutable)],
            possibly_published=[entry.id for entry, outcome in failed if isinstance(outcome, Unanswered)],
            max_backoff_seconds=self._options.max_backoff_seconds,
        )

    async def _flush(self) -> None:
        """Before the end: publish what is in memory, then give back every lease."""
        self._next_claim = float("inf")
        try:
            while self._held and not self._publisher.is_blocked:
                if held := self._take_held():
                    await self._publish(held)
        except (Unavailable, Contended) as error:
            log.warning("outbox.not_emptied", entries=len(self._held), error=str(error))
        try:
            await self._mark()
            await outbox_sql.release(self._database, holder=self._holder)
        except (Unavailable, Contended) as error:
            log.warning(
                "outbox.lease_not_released", lease_seconds=self._options.lease_seconds, error=str(error)
            )
