"""Record the publishes of this process, and what they say about the broker.

During a memory or disk alarm the broker reads no publishes, and the scheduler's publish may hang for as long. A queue
without the message then proves nothing. The broker reports the alarm only to a connection that publishes, so own
publishes that were confirmed in time are the evidence that there was none.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dlq_handler.clock import monotonic_seconds
from dlq_handler.text import rounded

CONFIRMED_WITHIN_SECONDS = 60.0
"""The longest time without a confirmed publish after which nothing is known about the broker."""
SLOW_AFTER_SECONDS = 5.0
"""A publish that takes longer was held up by the broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishView:
    """At one moment, in one process. A process that has just started knows nothing yet."""

    quick_seconds: float = 0.0
    """How long all publishes have been confirmed in time, without a gap."""
    confirmed_seconds_ago: float | None = None
    """None: none since the process began."""
    slow_seconds_ago: float | None = None
    """Since the end of the last slow publish; 0 while one is slow. None: none since the process began."""

    def cover(self, seconds: float) -> bool:
        """True when a publish of another program cannot have hung for so long up to now."""
        return self._is_recent(seconds) and self.quick_seconds >= seconds

    def seconds_until_cover(self, seconds: float) -> float | None:
        """When publishes go on as they do now; None: they are not confirmed in time now."""
        if self.quick_seconds == 0 or not self._is_recent(seconds):
            return None
        return max(0.0, seconds - self.quick_seconds)

    def were_slow_within(self, seconds: float) -> bool:
        """True only when a slow publish was seen, not when nothing is known."""
        return self.slow_seconds_ago is not None and self.slow_seconds_ago < seconds

    @property
    def hang_now(self) -> bool:
        return self.slow_seconds_ago == 0

    def evidence(self) -> dict[str, float | None]:
        known = {
            "quick_seconds": rounded(self.quick_seconds),
            "confirmed_seconds_ago": rounded(self.confirmed_seconds_ago),
        }
        return (
            known
            if self.slow_seconds_ago is None
            else known | {"slow_seconds_ago": rounded(self.slow_seconds_ago)}
        )

    def _is_recent(self, seconds: float) -> bool:
        ago = self.confirmed_seconds_ago
        return ago is not None and ago <= min(CONFIRMED_WITHIN_SECONDS, seconds)

    @property
    def description(self) -> str:
        if self.hang_now:
            return "a publish of dlq-handler's own hangs right now"
        if self.confirmed_seconds_ago is None or self.confirmed_seconds_ago > CONFIRMED_WITHIN_SECONDS:
            return f"no publish of dlq-handler's own was confirmed within {CONFIRMED_WITHIN_SECONDS:g} s"
        return f"dlq-handler's own publishes have been confirmed in time for {self.quick_seconds:.0f} s only"


@dataclass(slots=True)
class PendingPublish:
    began_at: float
    is_confirmed: bool = False
    is_blocked: bool = False
    """The broker has blocked the connection: counts as a publish that hangs."""


class PublishRecorder:
    """One for all publishers of a process."""

    def __init__(self, now: Callable[[], float] = monotonic_seconds) -> None:
        self._now = now
        self._pending: list[PendingPublish] = []
        # Start of the first publish of an unbroken series that were all confirmed in time.
        self._quick_since: float | None = None
        self._confirmed_at: float | None = None
        self._slow_at: float | None = None

    @contextmanager
    def publishing(self) -> Iterator[PendingPublish]:
        """Wrap one publish, which sets its outcome on the yielded object.

        Only a long or blocked publish counts as slow. One that fails at once proves nothing: a missing right is no sign
        of an alarm. A broker that is unavailable for long leaves a gap between two confirmed publishes.
        """
        publish = PendingPublish(self._now())
        self._pending.append(publish)
        try:
            yield publish
        finally:
            self._pending.remove(publish)
            self._note(publish)

    def view(self) -> PublishView:
        now = self._now()
        is_slow_now = any(now - one.began_at > SLOW_AFTER_SECONDS for one in self._pending)
        confirmed_ago = None if self._confirmed_at is None else now - self._confirmed_at
        is_unbroken = confirmed_ago is not None and confirmed_ago <= CONFIRMED_WITHIN_SECONDS
        quick_since = (
            now if self._quick_since is None or is_slow_now or not is_unbroken else self._quick_since
        )
        slow_ago = None if self._slow_at is None else now - self._slow_at
        return PublishView(
            quick_seconds=now - quick_since,
            confirmed_seconds_ago=confirmed_ago,
            slow_seconds_ago=0.0 if is_slow_now else slow_ago,
        )

    def _note(self, publish: PendingPublish) -> None:
        now = self._now()
        is_slow = publish.is_blocked or now - publish.began_at > SLOW_AFTER_SECONDS
        last = self._confirmed_at
        is_gap = last is None or publish.began_at - last > CONFIRMED_WITHIN_SECONDS
        if is_slow:
            self._slow_at = now
            self._quick_since = None
        elif publish.is_confirmed and (is_gap or self._quick_since is None):
            self._quick_since = publish.began_at
        if publish.is_confirmed:
            self._confirmed_at = now
