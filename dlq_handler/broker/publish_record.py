"""Keep record of this process's own publishes: how long each took, and whether it was confirmed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dlq_handler.clock import monotonic_seconds
from dlq_handler.domain.publishes import CONFIRMED_WITHIN_SECONDS, SLOW_AFTER_SECONDS, PublishView


@dataclass(slots=True)
class PublishUnderWay:
    began_at: float
    is_confirmed: bool = False
    is_blocked: bool = False
    """The broker has said that it reads no publishes: as good as a publish that hangs."""


class PublishRecord:
    """One for all publishers of a process."""

    def __init__(self, now: Callable[[], float] = monotonic_seconds) -> None:
        self._now = now
        self._under_way: list[PublishUnderWay] = []
        # The beginning of the first one of the publishes that were all confirmed in time, without a gap.
        self._quick_since: float | None = None
        self._confirmed_at: float | None = None
        self._slow_at: float | None = None

    @contextmanager
    def publishing(self) -> Iterator[PublishUnderWay]:
        """Around one publish, which sets what became of it.

        Only a long or blocked one counts as slow. One that fails at once says nothing: a missing right is no sign of
        an alarm. A broker that is away for long leaves a gap between two confirmed ones.
        """
        publish = PublishUnderWay(self._now())
        self._under_way.append(publish)
        try:
            yield publish
        finally:
            self._under_way.remove(publish)
            self._note(publish)

    def view(self) -> PublishView:
        now = self._now()
        is_slow_now = any(now - one.began_at > SLOW_AFTER_SECONDS for one in self._under_way)
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

    def _note(self, publish: PublishUnderWay) -> None:
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
