"""Is this replica healthy (`/healthz`: do all loops turn?) and ready (`/readyz`: is every check good?)?

`heartbeat` registers a loop for as long as its block lasts. `beat` records that it has turned; code far below a loop
calls it without knowing which loop it works for. `beating` beats while its block waits, up to the bound of that wait.
So idle, paused, backing off and waiting for a server all count as turning; a call that outlives its own bound does not.
A server that does not answer makes a replica unready, never unhealthy.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from dlq_handler.clock import monotonic_seconds

# The longest time between two beats of a loop that waits.
BEAT_SECONDS = 5.0
# A loop has stalled after this many of its intervals without a beat, and not before the time below.
MISSED_INTERVALS = 5
LEAST_STALL_SECONDS = 120.0
# Longer than any task holds a lock. A lock that is held for longer is a deadlock.
LOCK_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    loop: str
    seconds: float
    """Since its last beat."""
    limit_seconds: float


class _Heartbeat:
    def __init__(self, liveness: "Liveness", loop: str, interval_seconds: float) -> None:
        self.loop = loop
        self.limit_seconds = max(MISSED_INTERVALS * interval_seconds, LEAST_STALL_SECONDS)
        self.outer = _current.get()
        self._now = liveness.now
        self.last_beat = self._now()

    def beat(self) -> None:
        self.last_beat = self._now()
        if self.outer is not None:
            self.outer.beat()


class Liveness:
    """The loops of one process. Written by its event loop; may be read by any thread."""

    def __init__(self, now: Callable[[], float] = monotonic_seconds) -> None:
        self.now = now
        # Replaced, never changed: a reader in another thread sees one or the other.
        self._heartbeats: tuple[_Heartbeat, ...] = ()

    def watch(self) -> None:
        """Loops that this task and the tasks it makes begin from now on are registered here."""
        _liveness.set(self)

    @property
    def loops(self) -> list[str]:
        return [one.loop for one in self._heartbeats]

    def stalls(self) -> list[Stall]:
        """Loops that no longer turn, the longest first. Empty before the first loop begins."""
        now = self.now()
        stalls = [
            Stall(loop=one.loop, seconds=now - one.last_beat, limit_seconds=one.limit_seconds)
            for one in self._heartbeats
            if now - one.last_beat > one.limit_seconds
        ]
        return sorted(stalls, key=lambda stall: -stall.seconds)

    def add(self, one: _Heartbeat) -> None:
        self._heartbeats = (*self._heartbeats, one)

    def remove(self, one: _Heartbeat) -> None:
        self._heartbeats = tuple(other for other in self._heartbeats if other is not one)


_liveness: ContextVar[Liveness | None] = ContextVar("liveness", default=None)
_current: ContextVar[_Heartbeat | None] = ContextVar("heartbeat", default=None)


@contextmanager
def heartbeat(loop: str, *, interval_seconds: float = 0.0) -> Iterator[None]:
    """Register a loop. Where nothing watches (a single command, a test) this does nothing."""
    liveness = _liveness.get()
    if liveness is None:
        yield
        return
    one = _Heartbeat(liveness, loop, interval_seconds)
    liveness.add(one)
    token = _current.set(one)
    try:
        yield
    finally:
        _current.reset(token)
        liveness.remove(one)


def beat() -> None:
    """The loop that this code works for, if any, has turned."""
    one = _current.get()
    if one is not None:
        one.beat()


@contextmanager
def beating(at_most_seconds: float | None = None) -> Iterator[None]:
    """Around one wait. None: the wait may last for as long as it takes (for work, for a stop)."""
    one = _current.get()
    if one is None:
        yield
        return
    loop = asyncio.get_running_loop()
    end = None if at_most_seconds is None else loop.time() + at_most_seconds

    timer: asyncio.TimerHandle | None = None

    def beat_again() -> None:
        nonlocal timer
        one.beat()
        if end is None or loop.time() < end:
            timer = loop.call_later(BEAT_SECONDS, beat_again)

    beat_again()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
        one.beat()


@asynccontextmanager
async def bounded(seconds: float, limit: asyncio.Timeout | None = None) -> AsyncIterator[None]:
    """`asyncio.timeout(seconds)`, which may be given as `limit`. Until it is over, waiting counts as turning."""
    with beating(seconds):
        async with limit or asyncio.timeout(seconds):
            yield


@asynccontextmanager
async def locked(lock: asyncio.Lock, *, at_most_seconds: float | None = LOCK_SECONDS) -> AsyncIterator[None]:
    """Hold the lock. Waiting for it counts as turning: whether its holder hangs is the holder's heartbeat to say."""
    with beating(at_most_seconds):
        await lock.acquire()
    try:
        yield
    finally:
        lock.release()


PARTS = ("broker", "consumer", "database", "schema")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartState:
    ok: bool
    detail: str


@dataclass(slots=True)
class Readiness:
    """One answer per part. A part that has not reported yet is not ready: never green by default.

    What this replica cannot do now. What is wrong around it is in the view (diagnosis/).

    Written by the services, read by the listeners in another thread.
    Each change replaces a whole dictionary, so that a reader never sees one that changes under it.
    """

    checks: dict[str, PartState] = field(
        default_factory=lambda: {part: PartState(ok=False, detail="not checked yet") for part in PARTS}
    )
    liveness: Liveness = field(default_factory=Liveness)
    _wakes: list[asyncio.Event] = field(default_factory=list)

    def wake_when_changed(self, wake: asyncio.Event) -> None:
        """Set this event whenever a part becomes ready, or is no longer."""
        self._wakes.append(wake)

    def report(self, part: str, *, ok: bool, detail: str) -> None:
        before = self.checks.get(part)
        self.checks = self.checks | {part: PartState(ok=ok, detail=detail)}
        if before is None or before.ok != ok:
            for wake in self._wakes:
                wake.set()

    @property
    def is_ready(self) -> bool:
        return all(check.ok for check in self.checks.values())
