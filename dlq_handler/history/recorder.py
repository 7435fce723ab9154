"""Write down what happens, for those who look and for those who come in the morning.

Every replica: that it consumed throughout a minute, that it came and went, what its gate did, that it decided letters
(once a second at most). The leader: how the workers were found. The brake is everybody's, and told of once.
Never: takes part in anything it tells of; when it cannot write, nothing but the history is the poorer.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

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
    SIDECAR_STARTED,
    SIDECAR_STOPPED,
    Topic,
)
from dlq_handler.host.workers_sql import worker_names
from dlq_handler.loop import every
from dlq_handler.safety import brake_sql
from dlq_handler.safety.gate import GateCause
from dlq_handler.safety.gate_service import Gate
from dlq_handler.tasks import task_group
from dlq_handler.workers.availability import Availability

log = structlog.get_logger()

# What happened to the brake longer ago than that, while nobody was there to tell, is no news to anybody who watches.
NEWS_FOR = timedelta(hours=1)
# Whoever asked us to stop waits for it.
FAREWELL_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRecorderOptions:
    replica: str
    is_shadow: bool = False
    """True: it consumes copies, so that it did says nothing about letters."""
    interval_seconds: float = 5.0
    decided_seconds: float = 1.0


class HistoryRecorder:
    def __init__(
        self,
        database: Database,
        policy: HistoryRecorderOptions,
        *,
        leadership: Leadership,
        gate: Gate,
        consuming_seconds: Callable[[], float],
        decided: Callable[[], int],
        availabilities: Callable[[], Mapping[int, Availability] | None],
    ) -> None:
        """`consuming_seconds()`: for how long without a break, 0 when we do not; `decided()` counts the letters that
        this process has put on record; `availabilities()` is None while nobody can tell.
        """
        self._database, self._policy = database, policy
        self._leadership, self._gate = leadership, gate
        self._consuming_seconds, self._decided = consuming_seconds, decided
        self._availabilities = availabilities
        self._told_decided = 0
        self._has_started = False
        self._closed_by: frozenset[GateCause] = frozenset()
        self._told_brake: set[datetime | None] = {None}

    async def run(self, stop: asyncio.Event) -> None:
        async with task_group() as loops:
            loops.create_task(every(self._policy.interval_seconds, self.tick, stop, name="history_recorder"))
            loops.create_task(
                every(
                    self._policy.decided_seconds, self.tell_of_letters, stop, name="history_recorder-letters"
                )
            )
        await self._tell_of_end()

    async def tick(self) -> None:
        async with self._database.one_transaction():
            await self._record()

    async def _record(self) -> None:
        if not self._has_started:
            await self._tell(Topic.SIDECAR, SIDECAR_STARTED, subject=self._policy.replica)
            self._has_started = True
        consuming_seconds = self._consuming_seconds()
        if consuming_seconds > 0 and not self._policy.is_shadow:
            await history_sql.record_consuming(self._database, consuming_seconds=consuming_seconds)
        await self._tell_of_gate()
        await self._tell_of_brake()
        if self._leadership.is_leader:
            await self._note_workers()

    async def tell_of_letters(self) -> None:
        decided = self._decided()
        if decided == self._told_decided:
            return
        await self._tell(Topic.LETTERS, LETTERS_DECIDED, detail=str(decided - self._told_decided))
        self._told_decided = decided

    async def _note_workers(self) -> None:
        seen = self._availabilities()
        if seen is None:
            return
        names = await worker_names(self._database)
        await history_sql.note_workers(
            self._database,
            {one: (names.get(one, str(one)), availability) for one, availability in seen.items()},
            replica=self._policy.replica,
        )

    async def _tell_of_gate(self) -> None:
        seen = await self._gate.look()
        if seen.unknown_explanation is not None:
            return
        # Every process begins with a young link.
        causes = frozenset(seen.causes) - {GateCause.YOUNG_LINK}
        for kind, changed in (
            (GATE_CLOSED, causes - self._closed_by),
            (GATE_OPENED, self._closed_by - causes),
        ):
            for cause in sorted(changed):
                await self._tell(Topic.GATE, kind, subject=cause.value)
        self._closed_by = causes

    async def _tell_of_brake(self) -> None:
        async with self._database.transaction() as tx:
            view = await brake_sql.look(tx)
            for kind, at, who in (
                (BRAKE_TRIPPED, view.state.tripped_at, view.state.tripped_by),
                (BRAKE_RELEASED, view.state.released_at, view.state.released_by),
            ):
                if at is None or at in self._told_brake or view.now - at > NEWS_FOR:
                    continue
                await events_sql.tell(
                    tx,
                    topic=Topic.BRAKE,
                    kind=kind,
                    subject=who,
                    replica=self._policy.replica,
                    at=at,
                    once=True,
                )
        self._told_brake |= {view.state.tripped_at, view.state.released_at}

    async def _tell_of_end(self) -> None:
        """As well as it goes: where the database is away, the gap in what was seen says it."""
        if not self._has_started:
            return
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self.tell_of_letters()
                await self._tell(Topic.SIDECAR, SIDECAR_STOPPED, subject=self._policy.replica)
        except (Unavailable, Contended, TimeoutError) as error:
            log.warning("history.end_unrecorded", error=str(error) or type(error).__name__)

    async def _tell(
        self, topic: Topic, kind: str, *, subject: str | None = None, detail: str | None = None
    ) -> None:
        async with self._database.transaction() as tx:
            await events_sql.tell(
                tx, topic=topic, kind=kind, subject=subject, detail=detail, replica=self._policy.replica
            )
