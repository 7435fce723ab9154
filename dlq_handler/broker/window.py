"""The letters that one channel has delivered and we have not settled: what waits, what is put off.

It knows when it is full, by count or by bytes: a thousand letters may be a megabyte or a gigabyte.
Pure: `now` is an argument, nothing is sent.
"""

from collections import Counter, deque
from collections.abc import Iterable
from datetime import datetime
from heapq import heappop, heappush

from dlq_handler.broker.delivery import AckPlan, Delivery, plan_acks
from dlq_handler.domain.canary import is_canary
from dlq_handler.domain.dead_letter import DeadLetter

# What a letter holds beside its body: some twenty fields and their strings, generously.
LETTER_OVERHEAD_BYTES = 2048

# How long a letter waits before it is looked at again when an older one of its execution is being judged.
BUSY_SECONDS = 0.05


class Window:
    def __init__(self, *, incarnation: int, prefetch: int, max_bytes: int) -> None:
        self._incarnation, self._prefetch, self._max_bytes = incarnation, prefetch, max_bytes
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
        return len(self._open) >= self._prefetch or self.is_over_bytes

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
        """Those put off first, as they came first; then the others in order of arrival.

        A letter stays back while an older one of its execution is put off, or taken and not settled: two letters of one
        execution are judged in the order in which they were delivered.
        """
        due: list[Delivery] = []
        while self._put_off and self._put_off[0][0] <= now and len(due) < limit:
            due.append(heappop(self._put_off)[2])
        due.sort(key=lambda delivery: delivery.tag)
        busy = dict.fromkeys(self._taken, now + BUSY_SECONDS)
        busy |= {delivery.letter.execution_id: until for until, _, delivery in self._put_off}
        taken: list[Delivery] = []
        while (due or self._arrived) and len(taken) < limit:
            delivery = due.pop(0) if due else self._arrived.popleft()
            until = busy.get(delivery.letter.execution_id)
            if until is None:
                taken.append(delivery)
            else:
                heappush(self._put_off, (until, delivery.tag, delivery))
        self._taken.update(delivery.letter.execution_id for delivery in taken)
        self._taken.pop(None, None)
        return taken

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
