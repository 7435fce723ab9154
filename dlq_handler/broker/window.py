"""The letters that one channel has delivered and we have not settled: what waits, what is put off.

It knows when it is full, by count or by bytes: a thousand letters may be a megabyte or a gigabyte.
Pure: `now` is an argument, nothing is sent.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from datetime import datetime
from heapq import heappop, heappush

from dlq_handler.broker.delivery import AckPlan, Delivery, plan_acks
from dlq_handler.domain.canary import is_canary
from dlq_handler.domain.dead_letter import DeadLetter

# What a letter holds beside its body: some twenty fields and their strings, generously.
LETTER_OVERHEAD_BYTES = 2048

# The pause before a dead letter is looked at again when another one of its execution is being decided.
BUSY_SECONDS = 0.05


class Window:
    def __init__(self, *, incarnation: int, prefetch: int, max_bytes: int) -> None:
        self._incarnation, self._max_bytes = incarnation, max_bytes
        self.prefetch = prefetch
        """How many unsettled dead letters the broker delivers at most."""
        self._open: dict[int, Delivery] = {}
        """By tag. The broker counts tags upwards, so the order of arrival is the order of tags."""
        self._arrived: deque[Delivery] = deque()
        self._put_off: list[tuple[float, int, Delivery]] = []
        self._taken: Counter[int | None] = Counter()
        """Letters given and not yet settled or put off, by execution."""
        self.held_bytes = 0

    @property
    def is_over_bytes(self) -> bool:
        return self.held_bytes >= self._max_bytes

    @property
    def is_full(self) -> bool:
        """Nothing more can arrive before something is settled, so there is nothing to wait for."""
        return len(self._open) >= self.prefetch or self.is_over_bytes

    @property
    def outstanding(self) -> int:
        return len(self._open)

    @property
    def oldest_death(self) -> datetime | None:
        """Of the letters that are somebody's work; None: there is none, or none of them tells when it died."""
        letters = (delivery.letter for delivery in self._open.values())
        times = (one.died_at for one in letters if not (one.is_game_day or is_canary(one)))
        return min((time for time in times if time is not None), default=None)

    @property
    def arrived(self) -> int:
        return len(self._arrived)

    def arrive(self, tag: int, letter: DeadLetter) -> None:
        held = len(letter.body) + len(letter.headers) + LETTER_OVERHEAD_BYTES
        self._open[tag] = delivery = Delivery(tag, self._incarnation, letter, held)
        self.held_bytes += held
        self._arrived.append(delivery)

    def ready(self, now: float) -> int:
        """How many letters `take` could give."""
        return len(self._arrived) + sum(1 for due, _, _ in self._put_off if due <= now)

    def next_due(self) -> float | None:
        return self._put_off[0][0] if self._put_off else None

    def take(self, limit: int, now: float) -> list[Delivery]:
        """Postponed dead letters that are due, then the others, in the order of their tags.

        Dead letters of one execution are decided in the order of their delivery. So one stays back until an older one
        of its execution that is postponed is due, and while any of its execution is being decided; a younger one never
        keeps it back. What stays back is due later than now: an empty answer means that nothing is due any more.
        """
        due: deque[tuple[float, int, Delivery]] = deque()
        while self._put_off and self._put_off[0][0] <= now:
            due.append(heappop(self._put_off))
        due = deque(sorted(due, key=lambda entry: entry[1]))
        # Of each execution the oldest one that is postponed for longer.
        waiting: dict[int | None, tuple[int, float]] = {}
        for until, tag, delivery in self._put_off:
            number = delivery.letter.execution_id
            if number not in waiting or tag < waiting[number][0]:
                waiting[number] = tag, until
        taken: list[Delivery] = []
        while (due or self._arrived) and len(taken) < limit:
            delivery = due.popleft()[2] if due else self._arrived.popleft()
            looked_at_again = self._stays_until(delivery, waiting, now)
            if looked_at_again is None:
                taken.append(delivery)
            else:
                heappush(self._put_off, (looked_at_again, delivery.tag, delivery))
        for entry in due:
            heappush(self._put_off, entry)
        self._taken.update(delivery.letter.execution_id for delivery in taken)
        self._taken.pop(None, None)
        return taken

    def _stays_until(
        self, delivery: Delivery, waiting: Mapping[int | None, tuple[int, float]], now: float
    ) -> float | None:
        """When to look at it again; None: it can be given now."""
        number = delivery.letter.execution_id
        if number is None:
            return None
        if number in self._taken:
            return now + BUSY_SECONDS
        tag, until = waiting.get(number, (delivery.tag, now))
        return until if tag < delivery.tag else None

    def put_off(self, deliveries: Iterable[Delivery], until: float) -> None:
        for delivery in deliveries:
            if self._is_ours(delivery):
                self._hand_back(delivery)
                heappush(self._put_off, (until, delivery.tag, delivery))

    def settle(self, deliveries: Iterable[Delivery]) -> AckPlan:
        """Forget them, and say how to acknowledge them, but for those of other channels or settled before."""
        ours = {delivery.tag: delivery for delivery in deliveries if self._is_ours(delivery)}
        plan = plan_acks(self._open, ours)
        for tag, delivery in ours.items():
            self._hand_back(delivery)
            self.held_bytes -= self._open.pop(tag).held_bytes
        return plan

    def _hand_back(self, delivery: Delivery) -> None:
        number = delivery.letter.execution_id
        self._taken[number] -= 1
        if self._taken[number] <= 0:
            del self._taken[number]

    def _is_ours(self, delivery: Delivery) -> bool:
        return delivery.incarnation == self._incarnation and delivery.tag in self._open
