"""Check the database every few seconds, and at once when a connection is lost: does it answer, are the tables of
dlq-handler there, how many entries are in the outbox?

The checks also date the connection: old heartbeats prove something only after a connection without a break.
"""

import asyncio
from collections.abc import Collection, Sequence

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database import migrate
from dlq_handler.database.engine import Database
from dlq_handler.endings import outbox_sql
from dlq_handler.errors import SchemaUnfit, Unavailable
from dlq_handler.health import Readiness
from dlq_handler.host import grants_sql
from dlq_handler.host.rights import Feature
from dlq_handler.loop import every
from dlq_handler.metrics import Metrics

log = structlog.get_logger()

# The pause between two counts of the outbox, as a multiple of the time that the first one took.
COUNT_PAUSE = 50

GRANTS_SECONDS = 60.0


class DatabaseWatch:
    def __init__(
        self,
        database: Database,
        *,
        readiness: Readiness,
        metrics: Metrics,
        features: Collection[Feature] = (),
        interval_seconds: float = 5.0,
    ) -> None:
        """`features`: those that are enabled and need rights of their own."""
        self._features = features
        self._database, self._readiness, self._metrics = database, readiness, metrics
        self._interval_seconds = interval_seconds
        self._were_missing = False
        self._missing: Sequence[str] = ()
        self._grants_read_at = float("-inf")
        self._times_back = 0
        self._waiting: outbox_sql.Pending | None = None
        self._count_at = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        lost = self._database.connection_lost
        await every(self._interval_seconds, self.tick, stop, name="database-watch", wake=lost)

    async def tick(self) -> None:
        try:
            # The state reader asks every 2 s: a ping is needed only when its answer is missing.
            if not self._database.answered_within(self._interval_seconds / 2):
                await self._database.ping()
            self._readiness.report("database", ok=True, detail="answers")
            async with self._database.one_transaction():
                found = await migrate.check_usable(self._database)
                self._readiness.report("schema", ok=True, detail=found.note or "current")
                waiting = await self._count_waiting()
                missing = await self._read_missing_grants()
            if missing and not self._were_missing:
                statements = await grants_sql.grants_for_us(self._database, self._features)
                log.warning("grants.missing", grants=list(missing), run=statements)
        except Unavailable as error:
            component = "schema" if isinstance(error, SchemaUnfit) else "database"
            self._readiness.report(component, ok=False, detail=error.what)
            self._waiting = None
            self._metrics.set_outbox(None, None, None)
            raise
        self._count_reconnects()
        self._metrics.set_outbox(waiting.count, waiting.oldest_age_seconds, waiting.unroutable)
        # Not a part of readiness: a host may write its history with rights of its own.
        self._were_missing = bool(missing)

    async def _read_missing_grants(self) -> Sequence[str]:
        """Once a minute, and more often while some are missing: rights hardly ever change."""
        now = monotonic_seconds()
        if self._were_missing or now - self._grants_read_at >= GRANTS_SECONDS:
            self._missing = await grants_sql.missing_grants(self._database, features=self._features)
            self._grants_read_at = now
        return self._missing

    async def _count_waiting(self) -> outbox_sql.Pending:
        """Counting a million entries takes long: the longer it took, the longer the last count is used again."""
        started = monotonic_seconds()
        if self._waiting is None or started >= self._count_at:
            self._waiting = await outbox_sql.pending(self._database)
            finished = monotonic_seconds()
            self._count_at = finished + COUNT_PAUSE * (finished - started)
        return self._waiting

    def _count_reconnects(self) -> None:
        """By the count of the connection: an outage between two checks must be counted too."""
        for _ in range(self._database.times_back - self._times_back):
            self._metrics.count_reconnect("database")
        self._times_back = self._database.times_back
