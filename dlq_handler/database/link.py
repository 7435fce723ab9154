"""How long the database has been answering without a break, by the process clock.

After an outage every heartbeat is old, because no worker could write one. So a decision that depends on heartbeats
asks how long the replica has been connected. If that is uncertain, the answer is zero.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from dlq_handler.clock import monotonic_seconds
from dlq_handler.errors import Unavailable, Unreachable

# Longer than the interval of the health loop. Without an answer for so long, the state of the link is unknown.
SILENCE_SECONDS = 15.0


def silence_within(limit_seconds: float) -> float:
    """How long a link may be silent without being broken, where heartbeats of that age count as old.

    Half of the limit: a shorter hang is not noticed, and after it no heartbeat may be too old.
    """
    return min(SILENCE_SECONDS, limit_seconds / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """The database is unreachable: a lost connection, and a new one that could not be made."""

    since: datetime
    """When the connection was lost, by this machine's clock."""
    what: str
    is_unreachable: bool
    """False: it answers, and refuses the connection."""


class Link:
    def __init__(self, silence_seconds: float = SILENCE_SECONDS) -> None:
        self._silence_seconds = silence_seconds
        self._up_since: float | None = None
        self._last_answer = 0.0
        self._is_broken = False
        self.times_back = 0
        """How often the database answered again after a break."""
        self.outage: Outage | None = None
        self._lost_at: datetime | None = None

    def record_answer(self) -> None:
        now = monotonic_seconds()
        self.times_back += self._is_broken
        self._is_broken = False
        self._lost_at = self.outage = None
        if self._up_since is None or now - self._last_answer > self._silence_seconds:
            self._up_since = now
        self._last_answer = now

    def record_break(self) -> None:
        # The first answer after the start is not a recovery.
        self._is_broken |= self._last_answer > 0
        self._up_since = None
        self.suspect()

    def suspect(self) -> None:
        """A connection ended. That alone proves no outage. If the next connection fails, the outage began now."""
        self._lost_at = self._lost_at or datetime.now(UTC)

    def confirm_outage(self, error: Unavailable) -> None:
        """A new connection was tried and failed. No effect if the link is up."""
        if self._up_since is None and self._lost_at is not None:
            self.outage = Outage(
                since=self._lost_at, what=error.what, is_unreachable=isinstance(error, Unreachable)
            )

    def answered_within(self, seconds: float) -> bool:
        """Whether the database answered within these seconds, and no connection was lost after the answer."""
        return self._lost_at is None and monotonic_seconds() - self._last_answer <= seconds

    def is_answering(self, answered_at: float, *, statement_seconds: float) -> bool:
        """Whether the database answers, although a transaction has had no answer since this time of the process clock.

        A statement may take up to `statement_seconds`. Within that time other connections decide, unless the
        transaction was answered a short time ago. After it the server had to end the statement: the link is broken.
        """
        now = monotonic_seconds()
        silent_seconds = now - answered_at
        if silent_seconds > statement_seconds:
            return False
        return silent_seconds <= self._silence_seconds or self._is_up(now)

    @property
    def age_seconds(self) -> float:
        now = monotonic_seconds()
        return now - self._up_since if self._up_since is not None and self._is_up(now) else 0.0

    def _is_up(self, now: float) -> bool:
        return self._up_since is not None and now - self._last_answer <= self._silence_seconds
