"""Tell a webhook when the diagnosis changes: once for all replicas, again until it was taken.

The leader tells, and notes in the database what it told, so that the next leader does not repeat it. While the database
is away nobody can lead: then the one that led last goes on from memory, because that the database is away is the news.
A process that dies between the post and the note makes the next leader tell it once more.
Never: holds up anything else; a receiver that does not answer costs nobody but this loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.domain.diagnosis import Diagnosis
from dlq_handler.domain.notification import Told, changes, told_by, unclear
from dlq_handler.domain.webhook_message import Sender, message
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.services.every import Backoff, every
from dlq_handler.services.leadership import Leadership
from dlq_handler.services.observer import Observer
from dlq_handler.services.webhook import Webhook, WebhookFailed
from dlq_handler.store import mute, notified
from dlq_handler.store.engine import Database

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifierPolicy:
    cooldown_seconds: float
    interval_seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the database said last, and when that was by our own clock."""

    now: datetime
    asked_at: float
    told: dict[str, Told]
    muted_until: datetime | None
    is_leader: bool

    def time(self) -> datetime:
        """The database's, also while it is away."""
        return self.now + timedelta(seconds=monotonic_seconds() - self.asked_at)


class Notifier:
    def __init__(
        self,
        database: Database,
        webhook: Webhook,
        policy: NotifierPolicy,
        *,
        diagnoses: Callable[[], Sequence[Diagnosis] | None],
        leadership: Leadership,
        sender: Sender,
        observer: Observer,
    ) -> None:
        """`diagnoses()`: the latest; None while nobody has looked yet."""
        self._database, self._webhook, self._policy = database, webhook, policy
        self._diagnoses, self._leadership = diagnoses, leadership
        self._sender, self._observer = sender, observer
        self._known: _Known | None = None
        self._unwritten: dict[str, Told] = {}
        self._unclear: dict[str, datetime] = {}
        self._backoff, self._not_before = Backoff(first_seconds=5.0, most_seconds=300.0), 0.0

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._policy.interval_seconds, self.tick, stop, name="notifier")

    async def tick(self) -> None:
        diagnoses = self._diagnoses()
        known = await self._ask()
        if diagnoses is None:
            return
        now = known.time()
        self._unclear = unclear(diagnoses, self._unclear, now=now)
        is_muted = known.muted_until is not None and now < known.muted_until
        if not known.is_leader or is_muted or monotonic_seconds() < self._not_before:
            return
        due = changes(
            diagnoses,
            known.told | self._unwritten,
            unclear_since=self._unclear,
            now=now,
            cooldown_seconds=self._policy.cooldown_seconds,
        )
        if not due:
            return
        kinds = [one.diagnosis.kind for one in due]
        try:
            await self._webhook.post(message(due, diagnoses, at=now, sender=self._sender))
        except WebhookFailed as error:
            pause_seconds = self._backoff.next_seconds()
            self._not_before = monotonic_seconds() + pause_seconds
            self._observer.notified(is_delivered=False)
            log.warning(
                "notification.failed", kinds=kinds, error=error.what, next_try_seconds=round(pause_seconds, 1)
            )
            return
        self._backoff.reset()
        self._observer.notified(is_delivered=True)
        log.info("notification.sent", kinds=kinds)
        self._unwritten |= {one.kind: one for one in told_by(due, at=now)}
        await self._ask()

    async def _ask(self) -> _Known:
        """Note what is not noted yet, and read what others told. Raises while nothing was ever read."""
        try:
            async with self._database.transaction() as tx:
                await notified.record(tx, self._unwritten.values())
                seen = await notified.look(tx)
            muted = await mute.look(self._database)
        except (Unavailable, Contended):
            if self._known is None:
                raise
            # What we know stays, and so does whether it is ours to tell.
            return self._known
        self._unwritten = {}
        self._known = _Known(
            now=seen.now,
            asked_at=monotonic_seconds(),
            told=seen.told,
            muted_until=None if muted is None else muted.until,
            is_leader=self._leadership.is_leader,
        )
        return self._known
