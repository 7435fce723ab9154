"""Look at the intake queue from outside: is our consumer really there, how much waits, who else consumes?

A client can show "connected" while the broker knows no consumer of it. So the broker is asked, on a fresh channel, and
when it knows none while we think we consume, the intake is rebuilt. And when nothing may be taken (the brake, the
gate), a consumer that waits for letters is closed: who only waits would go on looking ready.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import structlog

from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.broker.consume.consumer import QueueConsumer
from dlq_handler.errors import Unavailable
from dlq_handler.health import Readiness
from dlq_handler.loop import every
from dlq_handler.metrics import Metrics
from dlq_handler.topology.consumers import count_unacknowledged
from dlq_handler.topology.decide_canary import IntakeView

log = structlog.get_logger()

OTHER_CONSUMER = "other_consumer"


class IntakeWatch:
    def __init__(
        self,
        source: QueueConsumer[Any],
        *,
        api: ManagementApi,
        own_tag_prefix: str,
        readiness: Readiness,
        metrics: Metrics,
        may_take: Callable[[], None] = lambda: None,
        interval_seconds: float = 5.0,
    ) -> None:
        """`api` may be away, or hide the consumers that its user may not see.

        `may_take()` raises `Unavailable` while no letter may be taken, in words.
        """
        self._may_take = may_take
        self._source, self._readiness, self._metrics = source, readiness, metrics
        self._api, self._own_tag_prefix = api, own_tag_prefix
        self._interval_seconds = interval_seconds
        self._told: str | None = None
        self._waiting: int | None = None
        self._other_tags: tuple[str, ...] = ()
        self._unseen = 0

    @property
    def view(self) -> IntakeView:
        """Of the last look, a few seconds ago."""
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
            self._may_take()
        except Unavailable as error:
            self._source.give_up(str(error))
        was_consuming = self._source.incarnation if self._source.is_consuming else None
        try:
            seen = await self._source.count()
        except Unavailable as error:
            self._waiting = None
            self._metrics.set_intake_queue(None, None)
            self._metrics.set_oldest_dead_letter(None)
            self._readiness.report("broker", ok=False, detail=error.what)
            raise
        self._readiness.report("broker", ok=True, detail="answers")
        self._waiting = seen.ready
        self._metrics.set_intake_queue(await self._messages(seen), seen.consumers)
        self._metrics.set_oldest_dead_letter(self._oldest_age_seconds(seen.ready))
        tags = await self._tags(seen.consumers)
        own_tag = self._source.consumer_tag
        is_missing = seen.consumers == 0 or not any(tag.startswith(own_tag) for tag in tags or (own_tag,))
        if is_missing and was_consuming is not None and was_consuming == self._source.incarnation:
            log.error("intake.unregistered", queue=self._source.queue)
            self._source.give_up("the broker knows no consumer of ours")
        self._tell_of_others(seen.consumers, tags)

    async def _messages(self, seen: QueueCounts) -> int:
        """Ready and unacknowledged; without the management API those of other consumers are not counted."""
        known = await count_unacknowledged(
            self._api, self._source.queue, seen.consumers, own=self._source.unacknowledged
        )
        return seen.ready + max(known or 0, self._source.outstanding)

    def _oldest_age_seconds(self, ready: int) -> float | None:
        """From what the letters that we hold tell of their death: one taken and put back, only to be looked at, has one
        delivery more on its count.
        """
        died_at = self._source.oldest_death
        if died_at is None:
            return 0.0 if ready == 0 and self._source.outstanding == 0 else None
        return max(0.0, (datetime.now(UTC) - died_at).total_seconds())

    async def _tags(self, consumers: int) -> Sequence[str] | None:
        """Who consumes, when we are not alone; None when that cannot be told."""
        if consumers <= 1:
            return None
        try:
            tags = await self._api.consumer_tags(self._source.queue)
        except Unavailable:
            return None
        # A user without the tag 'monitoring' sees only its own consumers.
        return tags if len(tags) >= consumers else None

    def _tell_of_others(self, consumers: int, tags: Sequence[str] | None) -> None:
        self._other_tags = tuple(
            sorted(tag for tag in tags or () if not tag.startswith(self._own_tag_prefix))
        )
        self._unseen = max(0, consumers - 1) if tags is None else 0
        others = self._others()
        if others is not None and others != self._told:
            log.warning("intake.shared", queue=self._source.queue, consumers=consumers, others=others)
        self._told = others
        self._readiness.note(
            OTHER_CONSUMER,
            f"{others} on {self._source.queue}: a stock executor fails executions without a notice and drops letters "
            "on a database error; set dlq_handler.intake.queue to a queue of our own"
            if others is not None
            else None,
        )

    def _others(self) -> str | None:
        """Who else consumes, in words; None when nobody does, or only replicas of ours."""
        if self._unseen:
            return (
                f"{self._unseen} other consumer(s), replicas of ours or not: the management API does not tell"
            )
        if self._other_tags:
            return f"other consumer(s) {', '.join(map(repr, self._other_tags[:5]))}"
        return None
