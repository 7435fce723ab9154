"""The unacknowledged deliveries of one channel: which of them wait, which are taken, which are postponed.

The window is full by count or by bytes: a thousand messages may be a megabyte or a gigabyte.
Pure: `now` is an argument, nothing is sent.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from datetime import datetime
from heapq import heappop, heappush
from typing import Generic

from dlq_handler.broker.delivery import AckPlan, Delivery, Item, plan_acks

# Pause before a delivery is tried again while another one with its order key is taken.
BUSY_SECONDS = 0.05


class DeliveryWindow(Generic[Item]):
    def __init__(self, *, incarnation: int, prefetch: int, max_bytes: int) -> None:
        self._incarnation, self._max_bytes = incarnation, max_bytes
        self.prefetch = prefetch
        """Maximum number of unacknowledged deliveries."""
        self._open: dict[int, Delivery[Item]] = {}
        """By tag. The broker counts tags upwards, so the order of arrival is the order of tags."""
        self._arrived: deque[Delivery[Item]] = deque()
        self._postponed: list[tuple[float, int, Delivery[Item]]] = []
        self._taken: Counter[int | None] = Counter()
        """Number of deliveries that are taken and neither acknowledged nor postponed yet, by order key."""
        self.held_bytes = 0

    @property
    def is_over_bytes(self) -> bool:
        return self.held_bytes >= self._max_bytes

    @property
    def is_full(self) -> bool:
        """Nothing more can arrive before something is acknowledged."""
        return len(self._open) >= self.prefetch or self.is_over_bytes

    @property
    def outstanding(self) -> int:
        return len(self._open)

    @property
    def oldest_death(self) -> datetime | None:
        """Of the items that are no canaries; None: there is none, or none of them has a time of death."""
        items = (delivery.item for delivery in self._open.values())
        times = (item.died_at for item in items if not item.is_canary)
        return min((time for time in times if time is not None), default=None)

    @property
    def arrived(self) -> int:
        return len(self._arrived)

    def add(self, tag: int, item: Item) -> None:
        self._open[tag] = delivery = Delivery(tag, self._incarnation, item)
        self.held_bytes += item.held_bytes
        self._arrived.append(delivery)

    def ready(self, now: float) -> int:
        """Number of deliveries that `take` could return."""
        return len(self._arrived) + sum(1 for due, _, _ in self._postponed if due <= now)

    def next_due(self) -> float | None:
        return self._postponed[0][0] if self._postponed else None

    def take(self, limit: int, now: float) -> list[Delivery[Item]]:
        """Returns postponed deliveries that are due, then the others, in the order of their tags.

        Items with the same order key are taken in the order of their delivery. So one waits until an older, postponed
        one with its key is due, and while any one with its key is taken. A younger one never delays it.
        A delivery that waits is due later than now: an empty result means that no delivery is due any more.
        """
        due: deque[tuple[float, int, Delivery[Item]]] = deque()
        while self._postponed and self._postponed[0][0] <= now:
            due.append(heappop(self._postponed))
        due = deque(sorted(due, key=lambda entry: entry[1]))
        # Of each order key the oldest one that is postponed for longer.
        waiting: dict[int | None, tuple[int, float]] = {}
        for until, tag, delivery in self._postponed:
            key = delivery.item.order_key
            if key not in waiting or tag < waiting[key][0]:
                waiting[key] = tag, until
        taken: list[Delivery[Item]] = []
        while (due or self._arrived) and len(taken) < limit:
            delivery = due.popleft()[2] if due else self._arrived.popleft()
            try_again_at = self._waits_until(delivery, waiting, now)
            if try_again_at is None:
                taken.append(delivery)
            else:
                heappush(self._postponed, (try_again_at, delivery.tag, delivery))
        for entry in due:
            heappush(self._postponed, entry)
        self._taken.update(delivery.item.order_key for delivery in taken)
        self._taken.pop(None, None)
        return taken

    def _waits_until(
        self, delivery: Delivery[Item], waiting: Mapping[int | None, tuple[int, float]], now: float
    ) -> float | None:
        """When to try it again; None: it can be taken now."""
        key = delivery.item.order_key
        if key is None:
            return None
        if key in self._taken:
            return now + BUSY_SECONDS
        tag, until = waiting.get(key, (delivery.tag, now))
        return until if tag < delivery.tag else None

    def postpone(self, deliveries: Iterable[Delivery[Item]], until: float) -> None:
        for delivery in deliveries:
            if self._is_open(delivery):
                self._release(delivery)
                heappush(self._postponed, (until, delivery.tag, delivery))

    def remove(self, deliveries: Iterable[Delivery[Item]]) -> AckPlan:
        """Returns how to acknowledge them. Those of other channels, and those removed before, are ignored."""
        own = {delivery.tag: delivery for delivery in deliveries if self._is_open(delivery)}
        plan = plan_acks(self._open, own)
        for tag, delivery in own.items():
            self._release(delivery)
            self.held_bytes -= self._open.pop(tag).item.held_bytes
        return plan

    def _release(self, delivery: Delivery[Item]) -> None:
        key = delivery.item.order_key
        self._taken[key] -= 1
        if self._taken[key] <= 0:
            del self._taken[key]

    def _is_open(self, delivery: Delivery[Item]) -> bool:
        return delivery.incarnation == self._incarnation and delivery.tag in self._open
