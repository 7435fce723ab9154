"""The brake (circuit breaker): asked before executions are ended, tripped by what did not fit, read every few seconds.

Promises: all replicas share one state and one count, both in the database. A transaction that leaves executions out
because of the limit trips the brake. In limited mode the limit is exact: transactions that end executions run one after
the other. Before the brake trips they do so only with room for fewer than four batches, so that each writer may exceed
the limit by one batch. Never: ends or decides anything itself.
"""

from datetime import datetime

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.errors import Braked, Contended, Unavailable
from dlq_handler.loop import MISSED_POLLS
from dlq_handler.metrics import Metrics
from dlq_handler.safety import brake_sql as store
from dlq_handler.safety.brake import (
    BrakeMode,
    BrakeView,
    in_words,
    mode_of,
    must_take_turns,
    room_for,
    why_tripped,
)
from dlq_handler.safety.options import BrakeOptions

log = structlog.get_logger()


DELETE_SECONDS = 60.0

# The metric's values.
STATE_NUMBERS = {
    BrakeMode.OFF: 0,
    BrakeMode.NORMAL: 0,
    BrakeMode.RELEASED: 0,
    BrakeMode.HOLDING: 1,
    BrakeMode.LIMITED: 2,
}


class Brake:
    def __init__(
        self,
        database: Database,
        options: BrakeOptions,
        *,
        batch_size: int,
        replica: str,
        metrics: Metrics,
        interval_seconds: float = 2.0,
    ) -> None:
        """`batch_size`: the largest number of executions that one transaction ends."""
        self._database, self._options, self._replica = database, options, replica
        self._batch_size = batch_size
        self._metrics = metrics
        self._interval_seconds = interval_seconds
        # Each trip and release is logged once; those before the start of this process are not counted.
        self._has_read = False
        self._holding: str | None = None
        self._logged: set[datetime | None] = {None}
        self._view: BrakeView | None = None
        self._deleted_at = float("-inf")
        self._read_at = float("-inf")
        metrics.read_brake_from(state=self._state_number, ended_last_minute=self._ended_last_minute)

    def recent_view(self) -> BrakeView | None:
        """None if the database was never read, or too long ago, also while the next read hangs."""
        is_old = monotonic_seconds() - self._read_at > MISSED_POLLS * self._interval_seconds
        return None if is_old else self._view

    def _state_number(self) -> int | None:
        view = self.recent_view()
        return None if view is None else STATE_NUMBERS[mode_of(view, self._options)]

    def _ended_last_minute(self) -> int | None:
        view = self.recent_view()
        return None if view is None else view.ended_last_minute

    async def room(self, tx: Transaction) -> int | None:
        """How many executions may be ended in this transaction; None: no limit. Raises `Braked` while it holds.

        Call it first in a transaction: it may take a lock that comes before all others (`brake_sql.lock_room`).
        """
        if not self._options.is_on:
            return None
        view = await store.read_brake(tx)
        if must_take_turns(view, self._options, batch_size=self._batch_size):
            await store.lock_room(tx)
            # The count now includes every transaction that held the lock before.
            view = await store.read_brake(tx)
        self._report(view)
        self.check()
        return room_for(view, self._options)

    async def check_now(self, tx: Transaction) -> None:
        """Raises `Braked` while the brake holds. Takes no lock, and needs the rights of an ending transaction."""
        await store.rehearse(tx)
        if not self._options.is_on:
            return
        view = await store.read_brake(tx)
        self._report(view)
        self.check()

    def check(self) -> None:
        """Raises `Braked` when the last read, at most a few seconds ago, found it holding. Reads nothing."""
        if self._holding is not None:
            raise Braked(self._holding)

    async def note(self, tx: Transaction, changed: int, left_out: int) -> None:
        """Call it last in a transaction that asked for `room`: how many were ended, and how many did not fit.

        Last, because the brake's one row is locked from here to the commit (see the lock order in endings/ender.py).
        `changed` is for the explanation: `end_executions` has counted it.
        """
        if left_out == 0 or not self._options.is_on:
            return
        view = await store.read_brake(tx)
        if mode_of(view, self._options).is_tripped:
            return
        explanation = why_tripped(view, self._options, changed=changed, left_out=left_out)
        await store.trip(
            tx, by=self._replica, explanation=explanation, hold_seconds=self._options.hold_seconds
        )

    async def tick(self) -> None:
        """Show the state, also on a replica that has nothing to end."""
        try:
            async with self._database.transaction() as tx:
                await self.read(tx)
        except (Unavailable, Contended):
            self.note_unread()
            raise

    async def read(self, tx: Transaction) -> None:
        self._report(await store.read_brake(tx))

    def note_unread(self) -> None:
        """The database did not answer."""
        self._view = None

    async def delete_old_counts(self) -> None:
        """Once a minute: counts that no decision needs any more."""
        if monotonic_seconds() - self._deleted_at < DELETE_SECONDS:
            return
        async with self._database.transaction() as tx:
            await store.delete_old_counts(tx)
        self._deleted_at = monotonic_seconds()

    def _report(self, view: BrakeView) -> None:
        mode, state = mode_of(view, self._options), view.state
        self._view, self._read_at = view, monotonic_seconds()
        words = in_words(view, self._options)
        self._holding = words if mode is BrakeMode.HOLDING else None
        if mode.is_tripped and state.tripped_at not in self._logged:
            log.error(
                "brake.tripped",
                by=state.tripped_by,
                at=state.tripped_at,
                hold_until=state.hold_until,
                explanation=state.explanation,
            )
            if self._has_read:
                self._metrics.brake_trips.inc()
        if self._has_read and state.released_at not in self._logged:
            log.info("brake.released", by=state.released_by, no_limit_until=state.released_until)
        self._logged |= {state.tripped_at, state.released_at}
        self._has_read = True
