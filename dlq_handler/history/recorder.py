"""Record what happens, for the event stream and the chart.

Every replica records that it consumed, started and stopped, what its safety gate did, and that it decided dead letters
(once a second at most). The leader records the availability of workers. The brake is common to all replicas, and one of
them records it. An error here delays the history and nothing else.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.history import events_sql, history_sql
from dlq_handler.history.event import (
    BRAKE_RELEASED,
    BRAKE_TRIPPED,
    GATE_CLOSED,
    GATE_OPENED,
    LETTERS_DECIDED,
    REPLICA_STARTED,
    REPLICA_STOPPED,
    Topic,
)
from dlq_handler.host.workers_sql import worker_names
from dlq_handler.loop import every
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate import GateCause
from dlq_handler.safety.gate_service import Gate
from dlq_handler.tasks import task_group
from dlq_handler.workers.availability import Availability
from dlq_handler.workers.watch import WorkerWatch

log = structlog.get_logger()

INTERVAL_SECONDS = 5.0
DECIDED_SECONDS = 1.0
# Unchanged availabilities are recorded again within each quarter of a minute, or the timelines would show a gap.
WORKERS_SECONDS = 8.0
# An older change of the brake, made while no replica ran, is not recorded as an event.
NEWS_FOR = timedelta(hours=1)
# The stop of the process waits for the last event no longer than this.
STOP_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """What this process has recorded already."""

    has_started: bool = False
    workers: Mapping[int, Availability] | None = None
    workers_at: float = float("-inf")
    closed_by: frozenset[GateCause] = frozenset()
    brake: frozenset[datetime | None] = frozenset({None})


@dataclass(frozen=True, slots=True, kw_only=True)
class _News:
    """An event that is not recorded yet."""

    topic: Topic
    kind: str
    subject: str | None = None
    detail: str | None = None
    at: datetime | None = None
    """None: the time when it is recorded."""
    once: bool = False
    """Every replica records it, and one event is kept."""


class HistoryRecorder:
    def __init__(
        self,
        database: Database,
        *,
        replica: str,
        leadership: Leadership,
        gate: Gate,
        brake: Brake,
        consumer: QueueConsumer[Any] | None,
        decided: Callable[[], int],
        worker_watch: WorkerWatch,
        decided_seconds: float = DECIDED_SECONDS,
    ) -> None:
        """`consumer` None: this replica consumes no dead letters, or only copies of them (shadow mode). `decided()`
        counts the dead letters that this process has recorded; their room uses this one, so it is a callback.
        """
        self._database, self._replica = database, replica
        self._leadership, self._gate, self._brake = leadership, gate, brake
        self._consumer, self._decided, self._worker_watch = consumer, decided, worker_watch
        self._decided_seconds, self._recorded_decided = decided_seconds, 0
        self._recorded = _Recorded()

    async def run(self, stop: asyncio.Event) -> None:
        async with task_group() as loops:
            loops.create_task(every(INTERVAL_SECONDS, self.tick, stop, name="history_recorder"))
            loops.create_task(
                every(self._decided_seconds, self.record_decided, stop, name="history_recorder-letters")
            )
        await self._record_stop()

    async def tick(self) -> None:
        before = self._recorded
        try:
            async with self._database.one_transaction():
                await self._record_all()
        except BaseException:
            # Not committed, as far as is known: the next tick records it again, rather than never.
            self._recorded = before
            raise

    async def _record_all(self) -> None:
        """Events last: every action of an operator waits for their lock, which is held until the commit."""
        news = [*self._start(), *await self._gate_changes(), *self._brake_changes()]
        consuming_seconds = 0.0 if self._consumer is None else self._consumer.consuming_seconds
        if consuming_seconds > 0:
            await history_sql.record_consuming(self._database, consuming_seconds=consuming_seconds)
        if self._leadership.is_leader:
            await self._record_workers()
        else:
            # Another leader may record changes meanwhile.
            self._recorded = replace(self._recorded, workers=None)
        for one in news:
            await self._record(one)

    def _start(self) -> list[_News]:
        if self._recorded.has_started:
            return []
        self._recorded = replace(self._recorded, has_started=True)
        return [_News(topic=Topic.REPLICA, kind=REPLICA_STARTED, subject=self._replica)]

    async def record_decided(self) -> None:
        decided = self._decided()
        if decided == self._recorded_decided:
            return
        count = str(decided - self._recorded_decided)
        await self._record(_News(topic=Topic.LETTERS, kind=LETTERS_DECIDED, detail=count))
        self._recorded_decided = decided

    async def _record_workers(self) -> None:
        availabilities = self._worker_watch.availabilities
        if availabilities is None:
            return
        now = monotonic_seconds()
        known = self._recorded
        if availabilities == known.workers:
            # Without reading the fleet: thousands of rows would be most of what an idle leader works on.
            if now - known.workers_at >= WORKERS_SECONDS:
                self._recorded = replace(known, workers_at=now)
                await history_sql.record_watching(self._database)
            return
        self._recorded = replace(known, workers=availabilities, workers_at=now)
        names = await worker_names(self._database)
        await history_sql.record_workers(
            self._database,
            {one: (names.get(one, str(one)), availability) for one, availability in availabilities.items()},
            began_at=self._worker_watch.began_at,
            replica=self._replica,
        )

    async def _gate_changes(self) -> list[_News]:
        seen = await self._gate.read_state()
        if seen.unknown_explanation is not None:
            return []
        # Every process starts with a young connection.
        causes = frozenset(seen.causes) - {GateCause.YOUNG_LINK}
        before = self._recorded.closed_by
        self._recorded = replace(self._recorded, closed_by=causes)
        return [
            _News(topic=Topic.GATE, kind=kind, subject=cause.value)
            for kind, changed in ((GATE_CLOSED, causes - before), (GATE_OPENED, before - causes))
            for cause in sorted(changed)
        ]

    def _brake_changes(self) -> list[_News]:
        view = self._brake.recent_view()
        if view is None:
            return []
        changes = (
            (BRAKE_TRIPPED, view.state.tripped_at, view.state.tripped_by),
            (BRAKE_RELEASED, view.state.released_at, view.state.released_by),
        )
        before = self._recorded.brake
        self._recorded = replace(
            self._recorded, brake=before | {view.state.tripped_at, view.state.released_at}
        )
        return [
            _News(topic=Topic.BRAKE, kind=kind, subject=name, at=at, once=True)
            for kind, at, name in changes
            if at is not None and at not in before and view.now - at <= NEWS_FOR
        ]

    async def _record_stop(self) -> None:
        """If the database is unavailable, the gap in the observed minutes shows the stop."""
        if not self._recorded.has_started:
            return
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.record_decided()
                await self._record(_News(topic=Topic.REPLICA, kind=REPLICA_STOPPED, subject=self._replica))
        except (Unavailable, Contended, TimeoutError) as error:
            log.warning("history.end_unrecorded", error=str(error) or type(error).__name__)

    async def _record(self, news: _News) -> None:
        async with self._database.transaction() as tx:
            await events_sql.record_event(
                tx,
                topic=news.topic,
                kind=news.kind,
                subject=news.subject,
                detail=news.detail,
                replica=self._replica,
                at=news.at,
                once=news.once,
            )
