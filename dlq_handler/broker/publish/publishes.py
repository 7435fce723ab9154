"""What dlq-handler's own publishes say about the broker. Pure.

During a memory or disk alarm the broker reads no publishes, and the scheduler's publish may hang for as long. A queue
without the message then proves nothing. The broker reports the alarm only to a connection that publishes, so own
publishes that were confirmed in time are the evidence that there was none.
"""

from dataclasses import dataclass

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
