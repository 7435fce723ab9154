"""How long a queue has been empty, with a consumer. During that time its messages were consumed at once."""

from dlq_handler.broker.admin.queue_probe import QueueCounts

# Often enough to notice a queue that fills, and cheap.
CHECK_SECONDS = 10.0

# After this many late or failed checks the time between two checks counts as not observed.
MISSED_CHECKS = 3


class QuietTime:
    """How long a queue was empty, with a consumer, at every check. A gap between two checks ends it."""

    def __init__(self, check_seconds: float) -> None:
        self._longest_gap = MISSED_CHECKS * check_seconds
        self._since: float | None = None
        self._last = 0.0

    def note(self, counts: QueueCounts | None, at: float) -> None:
        """`counts` None: there is no such queue, or that is unknown."""
        is_quiet = counts is not None and counts.consumers > 0 and counts.ready == 0
        is_gap = at - self._last > self._longest_gap
        self._since = (at if self._since is None or is_gap else self._since) if is_quiet else None
        self._last = at

    def restart(self) -> None:
        """A message was published to the queue: only later checks count."""
        self._since = None

    @property
    def seconds(self) -> float | None:
        return None if self._since is None else self._last - self._since
