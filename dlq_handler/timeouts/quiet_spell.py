"""How long a queue has been empty, with a consumer: as long as that, its messages were taken, not left waiting."""

from dlq_handler.broker.admin.queue_probe import QueueCounts

# Often enough that a queue which fills is seen, seldom enough to cost nothing.
LOOK_SECONDS = 10.0

# So many looks may be late or fail before the time between them counts as not observed.
LONGEST_GAP_LOOKS = 3


class QuietSpell:
    """For how long a queue was seen empty, with a consumer, at every look. A gap between two looks ends it."""

    def __init__(self, look_seconds: float) -> None:
        self._longest_gap = LONGEST_GAP_LOOKS * look_seconds
        self._since: float | None = None
        self._last = 0.0

    def looked(self, counts: QueueCounts | None, at: float) -> None:
        """None: there is no such queue, or that is unknown."""
        is_quiet = counts is not None and counts.consumers > 0 and counts.ready == 0
        is_gap = at - self._last > self._longest_gap
        self._since = (at if self._since is None or is_gap else self._since) if is_quiet else None
        self._last = at

    def begin_anew(self) -> None:
        """Something was put into the queue: only looks from now on count."""
        self._since = None

    @property
    def seconds(self) -> float | None:
        return None if self._since is None else self._last - self._since
