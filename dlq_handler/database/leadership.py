"""Elect one replica as leader: the one that holds the lease.

Promises: two replicas never write as leaders at once, because each write of a leader calls `fence` in its transaction.
After the death of a leader another replica leads within 40 seconds, whatever the intervals of the loops. `is_leader` is
only a hint that saves the other replicas work.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import IntEnum

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database import lease_sql
from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.loop import every
from dlq_handler.metrics import Metrics

log = structlog.get_logger()


class LeaseLost(Unavailable):
    """Another replica leads by now. Nothing that was about to be written may be."""

    def __init__(self, name: str) -> None:
        super().__init__("lease", f"{name!r} is held by another replica")


LEASE_SECONDS = 30.0
RENEW_SECONDS = 10.0
"""Interval at which the leader renews the lease and the others try to take it."""


class Leadership:
    def __init__(
        self,
        database: Database,
        lease: str,
        *,
        holder: str,
        metrics: Metrics,
        lease_seconds: float = LEASE_SECONDS,
        renew_seconds: float = RENEW_SECONDS,
        may_lead: Callable[[], bool] = lambda: True,
    ) -> None:
        """`holder` is never the same for two processes. `may_lead()`: False leaves the lease to another replica."""
        self._may_lead = may_lead
        self._database, self._lease, self._holder = database, lease, holder
        self._lease_seconds, self._renew_seconds = lease_seconds, renew_seconds
        self._good_until = 0.0
        self._was_leader = False
        self._wakes: list[asyncio.Event] = []
        metrics.leader.set_function(lambda: self.is_leader)

    @property
    def is_leader(self) -> bool:
        return monotonic_seconds() < self._good_until

    def wake_when_taken(self, wake: asyncio.Event) -> None:
        """Set this event whenever this replica becomes the leader: it continues the scans of a dead leader at once."""
        self._wakes.append(wake)

    async def fence(self, tx: Transaction) -> None:
        """Renew the lease inside this transaction. No other replica can take it before the transaction has ended."""
        asked_at = monotonic_seconds()
        if not await lease_sql.renew(tx, self._lease, holder=self._holder, seconds=self._lease_seconds):
            self._good_until = 0.0
            self._log_change()
            raise LeaseLost(self._lease)
        self._good_until = asked_at + self._lease_seconds

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._renew_seconds, self.tick, stop, name="leadership")
        await self._give_up()

    async def tick(self) -> None:
        """Take the lease, or renew it."""
        if not self._may_lead():
            if self._was_leader:
                await self._give_up()
            return
        asked_at = monotonic_seconds()
        try:
            is_held = await lease_sql.take(
                self._database,
                self._lease,
                holder=self._holder,
                seconds=self._lease_seconds,
            )
            self._good_until = asked_at + self._lease_seconds if is_held else 0.0
        except Contended:
            # A page is being written under this lease. If this replica holds it, the fence has renewed it.
            pass
        finally:
            self._log_change()

    async def _give_up(self) -> None:
        self._good_until = 0.0
        self._log_change()
        try:
            await lease_sql.give_up(self._database, self._lease, holder=self._holder)
        except (Unavailable, Contended) as error:
            log.warning("lease.not_released", lease_seconds=self._lease_seconds, error=str(error))

    def _log_change(self) -> None:
        is_leader = self.is_leader
        if is_leader == self._was_leader:
            return
        self._was_leader = is_leader
        if not is_leader:
            log.info("leadership.ended", lease=self._lease)
            return
        log.info("leadership.acquired", lease=self._lease)
        for wake in self._wakes:
            wake.set()


class _Rank(IntEnum):
    """An unavailable server must not hide a bug. Errors that only end work early come last: it is repeated anyway."""

    CANCELLED = 0
    BUG = 1
    UNAVAILABLE = 2
    CUT_SHORT = 3


def worst_error(errors: Sequence[BaseException], *, loop: str) -> BaseException:
    """Which of several errors to raise. The others are logged here, except repeats."""
    worst, *others = sorted(errors, key=_rank)
    logged = {repr(worst)}
    for other in others:
        if repr(other) in logged:
            continue
        logged.add(repr(other))
        if _rank(other) is _Rank.BUG:
            log.error("loop.crashed", loop=loop, exc_info=other)
        else:
            log.info("loop.further_error", loop=loop, error=str(other))
    return worst


def _rank(error: BaseException) -> _Rank:
    if not isinstance(error, Exception):
        return _Rank.CANCELLED
    if isinstance(error, LeaseLost | Contended):
        return _Rank.CUT_SHORT
    return _Rank.UNAVAILABLE if isinstance(error, Unavailable) else _Rank.BUG
