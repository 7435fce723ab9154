"""Record the publishes of this process: how long each took, and whether it was confirmed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dlq_handler.broker.publish.publishes import CONFIRMED_WITHIN_SECONDS, SLOW_AFTER_SECONDS, PublishView
from dlq_handler.clock import monotonic_seconds


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
