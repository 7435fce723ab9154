"""The safety gate: no decisions while what this process reads from the database is unreliable. One per process.

Promises: closed, it opens by reading the database, never by consuming. Each closing and each opening is logged once.
Its state is unknown when the last read is too old. Never: touches a dead letter; callers of `check` return theirs.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.errors import Contended, GateClosed, Unavailable
from dlq_handler.host import database_state_sql
from dlq_handler.loop import MISSED_POLLS
from dlq_handler.metrics import Metrics
from dlq_handler.safety.gate import (
    REMEMBERED,
    ClockReading,
    GateCause,
    GateState,
    is_right_again,
    is_wrong_database,
    jump_seconds,
    latest,
    recall,
    steady_after,
    unknown_among,
)
from dlq_handler.safety.options import GateOptions

log = structlog.get_logger()


class Gate:
    def __init__(
        self,
        database: Database,
        options: GateOptions,
        *,
        unavailable_after_seconds: float,
        metrics: Metrics,
        interval_seconds: float = 2.0,
    ) -> None:
        """`unavailable_after_seconds`: for how long the database must have been readable before an old heartbeat
        proves anything.
        """
        self._database, self._options = database, options
        self._unavailable_after_seconds = unavailable_after_seconds
        self._interval_seconds = interval_seconds
        self._causes: dict[GateCause, str] = {}
        self._closed_at: dict[GateCause, datetime] = {}
        # The process clock after the last read.
        self._read_at: float | None = None
        self._clock: ClockReading | None = None
        self._steady_since: datetime | None = None
        # The process clock when heartbeats were last found unreliable.
        self._distrusted_at = float("-inf")
        self._witnesses: dict[int, bool] = {}
        self._missing: list[int] = []
        metrics.read_gate_from(lambda: {cause: self.is_closed(cause) for cause in GateCause})

    @property
    def watched_seconds(self) -> float:
        """For how long heartbeats could be read reliably: connected, the clock steady, no standby."""
        return min(self._database.link_age_seconds, monotonic_seconds() - self._distrusted_at)

    @property
    def steady_since(self) -> datetime | None:
        """The database's time of the first read after its clock had jumped ahead; None: it has not jumped.

        Rows that were written before seem older than they are: count no age from before.
        """
        return self._steady_since

    @property
    def knows_workers(self) -> bool:
        """Whether an old heartbeat proves that a worker is unavailable."""
        return self.watched_seconds >= self._unavailable_after_seconds

    @property
    def fits_schema(self) -> bool:
        """False: another version of dlq-handler migrated the tables. This replica must leave the work to that one."""
        return GateCause.SCHEMA not in self._causes

    def is_closed(self, cause: GateCause) -> bool | None:
        """None: unknown, because the last read is too old, also while the next one hangs."""
        if self._why_unknown() is None:
            return cause in self._causes
        # What stops everything stays until the next read.
        return True if cause in self._stopping() else None

    @property
    def state(self) -> GateState:
        """The state to show. It depends on the age of the last read."""
        explanation = self._why_unknown()
        if explanation is not None and not self._stopping():
            return GateState(causes={}, unknown_explanation=explanation)
        return GateState(causes=self._causes, closed_at=self._closed_at)

    async def read_state(self) -> GateState:
        """As `state`; reads the database if that was never done, because during a start it would be unknown."""
        if self._read_at is None:
            with suppress(Unavailable, Contended):
                await self.tick()
        return self.state

    def check(self) -> None:
        """Raises `GateClosed` while nothing may be decided."""
        if stopping := self._stopping():
            raise GateClosed("; ".join(stopping.values()))

    def consider(self, found: Iterable[tuple[int, bool]]) -> None:
        """Call it before anything of a batch is written. Raises `GateClosed` when nothing may be written.

        `found`: the executions that were read for the batch, each with whether it exists.
        """
        self.check()
        if self._options.unknown_percent == 0:
            return
        witnesses = recall(self._witnesses, found)
        if not is_wrong_database(witnesses, unknown_percent=self._options.unknown_percent):
            self._witnesses = latest(witnesses)
            return
        missing = unknown_among(witnesses)
        self._missing = missing[-REMEMBERED:]
        self._set(
            GateCause.UNKNOWN_EXECUTIONS,
            f"{len(missing)} of the last {len(witnesses)} dead letters name executions that do not exist: check that "
            f"this is the right database. Opens when half of them exist; with dlq_handler.gate.unknown_percent: 0 "
            f"they are recorded anyway",
        )
        self.check()

    def see_clock(self, database_time: datetime, *, asked_at: float, answered_at: float) -> None:
        """Call it whenever the database's clock was read, before anything is decided by it."""
        reading = ClockReading(database_time=database_time, asked_at=asked_at, answered_at=answered_at)
        before, self._clock = self._clock, reading
        jumped = jump_seconds(before, reading) if before else 0.0
        if jumped:
            self._steady_since = steady_after(jumped, reading, before=self._steady_since)
            self._distrust_heartbeats(GateCause.CLOCK_JUMP, f"the database's clock jumped by {jumped:+.0f} s")

    async def tick(self) -> None:
        async with self._database.transaction() as tx:
            await self.read(tx)

    async def read(self, tx: Transaction) -> None:
        asked_at = monotonic_seconds()
        seen = await database_state_sql.read_database_state(tx, self._missing)
        self._read_at = monotonic_seconds()
        self.see_clock(seen.now, asked_at=asked_at, answered_at=monotonic_seconds())
        self._set(GateCause.SCHEMA, seen.schema.problem)
        if seen.is_in_recovery:
            self._database.renew_connections()
            self._distrust_heartbeats(GateCause.RECOVERY, "the database is a standby (pg_is_in_recovery)")
        else:
            self._set(GateCause.RECOVERY, None)
        if self._missing and is_right_again(len(self._missing), seen.existing):
            self._missing, self._witnesses = [], {}
            self._set(GateCause.UNKNOWN_EXECUTIONS, None)
        self._check_age()

    def _check_age(self) -> None:
        limit = self._unavailable_after_seconds
        if monotonic_seconds() - self._distrusted_at >= limit:
            self._set(GateCause.CLOCK_JUMP, None)
        # A standby that was promoted under an open connection leaves no other cause, and heartbeats prove nothing yet.
        is_explained = GateCause.RECOVERY in self._causes or GateCause.CLOCK_JUMP in self._causes
        seconds = self._database.link_age_seconds if is_explained else self.watched_seconds
        young = f"connected to the database for only {seconds:.0f} s; old heartbeats count after {limit:g} s"
        self._set(GateCause.YOUNG_LINK, young if seconds < limit else None)

    def _distrust_heartbeats(self, cause: GateCause, explanation: str) -> None:
        self._distrusted_at = monotonic_seconds()
        limit = self._unavailable_after_seconds
        self._set(cause, f"{explanation}; old heartbeats count again after {limit:g} s")

    def _set(self, cause: GateCause, explanation: str | None) -> None:
        was_closed = cause in self._causes
        if explanation is not None:
            # Replaced, not changed: metrics are read in another thread.
            self._causes = self._causes | {cause: explanation}
            if self._clock is not None:
                self._closed_at = {cause: self._clock.database_time} | self._closed_at
            if not was_closed and cause is GateCause.YOUNG_LINK:
                # Every process starts like this.
                log.info("gate.closed", cause=cause.value, explanation=explanation)
            elif not was_closed:
                log.warning("gate.closed", cause=cause.value, explanation=explanation)
        elif was_closed:
            self._causes = {one: other for one, other in self._causes.items() if one is not cause}
            self._closed_at = {one: at for one, at in self._closed_at.items() if one is not cause}
            log.info("gate.opened", cause=cause.value)

    def _stopping(self) -> dict[GateCause, str]:
        return {cause: explanation for cause, explanation in self._causes.items() if cause.stops_everything}

    def _why_unknown(self) -> str | None:
        """None: the last read is recent."""
        if self._read_at is None:
            return "this replica has not read the database yet"
        seconds = monotonic_seconds() - self._read_at
        if seconds <= MISSED_POLLS * self._interval_seconds:
            return None
        return f"this replica read the database {seconds:.0f} s ago for the last time"
