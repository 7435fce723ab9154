"""Check the intake queue on the broker: is this replica's consumer registered, how much waits, who else consumes?

A client can be connected while the broker has no consumer for it. So the watch asks the broker on a fresh channel, and
rebuilds the intake if the consumer is missing. While no dead letter may be consumed (brake, safety gate), the watch
closes a waiting consumer: otherwise the replica would still report ready.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import structlog

from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.clock import monotonic_seconds
from dlq_handler.endings.writers import Writer
from dlq_handler.errors import Unavailable
from dlq_handler.health import Readiness
from dlq_handler.loop import every
from dlq_handler.metrics import Metrics
from dlq_handler.topology.canary import IntakeView
from dlq_handler.topology.consumers import count_unacknowledged

log = structlog.get_logger()

# The management API lists a new consumer one statistics interval late (5 s by default): a replica that has just started
# is no other consumer.
LISTED_WITHIN_SECONDS = 15.0


class IntakeWatch:
    def __init__(
        self,
        source: QueueConsumer[Any],
        writer: Writer,
        *,
        api: ManagementApi,
        own_tag_prefix: str,
        readiness: Readiness,
        metrics: Metrics,
        interval_seconds: float = 5.0,
        now: Callable[[], float] = monotonic_seconds,
    ) -> None:
        """`api` may be unavailable, or hide consumers from its user."""
        self._writer = writer
        self._source, self._readiness, self._metrics = source, readiness, metrics
        self._api, self._own_tag_prefix = api, own_tag_prefix
        self._interval_seconds, self._now = interval_seconds, now
        self._last_others: str | None = None
        self._waiting: int | None = None
        self._other_tags: tuple[str, ...] = ()
        self._unseen = 0
        self._unseen_since: float | None = None

    @property
    def view(self) -> IntakeView:
        """The last observation, a few seconds old."""
        return IntakeView(
            consuming_seconds=self._source.consuming_seconds,
            waiting=self._waiting,
            others=self._other_tags,
            unseen=self._unseen,
        )

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._interval_seconds, self.tick, stop, name="intake-watch")

    async def tick(self) -> None:
        try:
            self._writer.check()
        except Unavailable as error:
            self._source.give_up(str(error))
        was_consuming = self._source.incarnation if self._source.is_consuming else None
        try:
            seen = await self._source.count()
        except Unavailable as error:
            self._waiting = None
            self._metrics.dlq_messages.set(None)
            self._metrics.dlq_consumers.set(None)
            self._metrics.dlq_oldest_age_seconds.set(None)
            self._readiness.report("broker", ok=False, detail=error.what)
            raise
        self._readiness.report("broker", ok=True, detail="answers")
        self._waiting = seen.ready
        self._metrics.dlq_messages.set(await self._messages(seen))
        self._metrics.dlq_consumers.set(seen.consumers)
        self._metrics.dlq_oldest_age_seconds.set(self._oldest_age_seconds(seen.ready))
        tags = await self._tags(seen.consumers)
        own_tag = self._source.consumer_tag
        is_missing = seen.consumers == 0 or not any(tag.startswith(own_tag) for tag in tags or (own_tag,))
        if is_missing and was_consuming is not None and was_consuming == self._source.incarnation:
            log.error("intake.unregistered", queue=self._source.queue)
            self._source.give_up("the broker has no consumer of this replica")
        self._report_others(seen.consumers, tags)

    async def _messages(self, seen: QueueCounts) -> int:
        """Ready and unacknowledged; without the management API those of other consumers are not counted."""
        known = await count_unacknowledged(
            self._api, self._source.queue, seen.consumers, own=self._source.unacknowledged
        )
        return seen.ready + max(known or 0, self._source.outstanding)

    def _oldest_age_seconds(self, ready: int) -> float | None:
        """By the deaths of the unacknowledged dead letters. Fetching and requeuing others would raise their delivery
        counts.
        """
        died_at = self._source.oldest_death
        if died_at is None:
            return 0.0 if ready == 0 and self._source.outstanding == 0 else None
        return max(0.0, (datetime.now(UTC) - died_at).total_seconds())

    async def _tags(self, consumers: int) -> Sequence[str] | None:
        """Tags of all consumers; None: unknown, or there is only one."""
        if consumers <= 1:
            return None
        try:
            tags = await self._api.consumer_tags(self._source.queue)
        except Unavailable:
            return None
        # A user without the tag 'monitoring' sees only its own consumers.
        return tags if len(tags) >= consumers else None

    def _report_others(self, consumers: int, tags: Sequence[str] | None) -> None:
        self._other_tags = tuple(
            sorted(tag for tag in tags or () if not tag.startswith(self._own_tag_prefix))
        )
        self._unseen = max(0, consumers - 1) if tags is None else 0
        if not self._unseen:
            self._unseen_since = None
        elif self._unseen_since is None:
            self._unseen_since = self._now()
        others = self._others()
        if others is not None and others != self._last_others:
            log.warning("intake.shared", queue=self._source.queue, consumers=consumers, others=others)
        self._last_others = others

    def _others(self) -> str | None:
        """A description of other consumers; None: only dlq-handler replicas consume."""
        if self._unseen_since is not None and self._now() - self._unseen_since >= LISTED_WITHIN_SECONDS:
            return f"{self._unseen} unidentified consumer(s), dlq-handler replicas or not"
        if self._other_tags:
            return f"other consumer(s) {', '.join(map(repr, self._other_tags[:5]))}"
        return None
