"""Count queues in the background without filling the broker's log.

A question about a missing queue closes its channel and leaves two error lines in the broker's log. So the existence
of queues is read from the management API's list of queues, if it answers. Without it, queues that were found before
are counted as often as a caller asks. At most two questions a minute about such queues may be refused, because the
queue was deleted since; and at most one a minute about other queues, whatever the number of queues.

Promises: a queue is reported as missing only while that is known: by a list of queues that is seconds old, or by two
refused questions, the last of them minutes old. Any other queue is unknown, and left out of the result.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_probe import QueueCounts, count_until_refused
from dlq_handler.clock import monotonic_seconds
from dlq_handler.errors import Unavailable
from dlq_handler.health import locked

UNKNOWN_QUEUE = (
    "unknown whether it exists: dlq-handler asks about missing queues slowly, because each question leaves error lines "
    "in the broker's log"
)
REFUSED_QUEUE = "unknown: the broker refuses access to it"

# Between two questions that the broker may refuse.
REFUSAL_SECONDS = 60.0
# Maximum number of refused questions within that time about queues that were found before.
MAX_DELETED = 2
# A queue that was missing this long ago is unknown.
MISSING_KEPT_SECONDS = 300.0
LIST_KEPT_SECONDS = 5.0
# Before the management API is asked again after it failed.
LIST_PAUSE_SECONDS = 60.0


@dataclass(slots=True)
class _Missing:
    refusals: int
    last_asked_at: float
    was_missing: bool
    """False: the broker refused the question."""


class QueueCounter:
    """One per process, so that its background checks share what they know. `count_all` may be called concurrently."""

    def __init__(
        self,
        admin: AdminConnection,
        *,
        api: ManagementApi,
        asks_all_once: bool = False,
        now: Callable[[], float] = monotonic_seconds,
    ) -> None:
        """`api` may not answer.

        `asks_all_once`: ask about each queue once, in spite of the broker's log, for a command that a person waits for.
        """
        self._admin, self._api, self._now = admin, api, now
        self._asks_all_once = asks_all_once
        self._present: set[str] = set()
        self._missing: dict[str, _Missing] = {}
        self._next_refusal_at = float("-inf")
        self._listed: frozenset[str] | None = None
        self._list_again_at = float("-inf")
        self._deleted_at: deque[float] = deque()
        """When the broker refused questions about queues that were found before."""
        # A lock of its own: an API that does not answer must not delay questions about queues that were found.
        self._list_turn = asyncio.Lock()
        # Two checks at once would use the one question of this minute twice.
        self._turn = asyncio.Lock()

    async def connect(self) -> int:
        """Returns the running number of the connection in use: another number means that the one before was lost."""
        return await self._admin.open()

    async def count(self, queue: str) -> QueueCounts | None:
        """None: no such queue. Raises `Unavailable` when that is unknown."""
        counted = await self.count_all([queue])
        if queue not in counted:
            raise Unavailable("broker", f"queue {queue!r}: {self.unknown_explanation(queue)}")
        return counted[queue]

    async def count_known(self, queue: str) -> QueueCounts | None:
        """None: no such queue, or unknown."""
        return (await self.count_all([queue])).get(queue)

    async def count_all(self, queues: Collection[str]) -> dict[str, QueueCounts | None]:
        """None: no such queue. A queue that is left out is unknown. Raises `Unavailable` without the broker."""
        listed = None
        if any(queue not in self._present for queue in queues):
            listed = await self._list()
        async with locked(self._turn):
            if listed is not None:
                self._present |= {
                    queue for queue in listed.intersection(queues) if not self._is_hidden(queue)
                }
            counted = await self._ask_present([queue for queue in queues if queue in self._present])
        # One queue was deleted, perhaps many: the list shows which of the others exist.
        if listed is None and any(queue not in counted for queue in queues):
            listed = await self._list()
        async with locked(self._turn):
            if listed is None:
                unsure = [queue for queue in queues if queue not in self._present and queue not in counted]
            else:
                missing = [queue for queue in queues if queue not in counted and queue not in listed]
                self._present.difference_update(missing)
                counted |= dict.fromkeys(missing)
                counted |= await self._ask_present(
                    [queue for queue in queues if queue in self._present and queue not in counted]
                )
                unsure = [queue for queue in queues if queue not in self._present and queue not in counted]
            return counted | await self._ask_slowly(unsure)

    async def missing_in_list(self, queues: Collection[str]) -> set[str]:
        """Those that the list of queues does not have. It is seconds old; without the management API, none is known."""
        listed = await self._list()
        return set() if listed is None else set(queues).difference(listed)

    def unknown_explanation(self, queue: str) -> str:
        """The reason why `count_all` left it out."""
        return REFUSED_QUEUE if self._is_hidden(queue) else UNKNOWN_QUEUE

    def learn(self, counted: Mapping[str, QueueCounts | None]) -> None:
        """Take over counts that were read elsewhere."""
        for queue, counts in counted.items():
            self._note(queue, counts, was_missing=counts is None)

    async def _list(self) -> frozenset[str] | None:
        """The names of all queues; None when the management API does not answer."""
        async with locked(self._list_turn):
            if self._now() >= self._list_again_at:
                # Set the pause first: a caller may cancel the request, which would then be repeated at once.
                self._listed, self._list_again_at = None, self._now() + LIST_PAUSE_SECONDS
                with suppress(Unavailable):
                    self._listed = frozenset(await self._api.queue_names())
                    self._list_again_at = self._now() + LIST_KEPT_SECONDS
            return self._listed

    async def _ask_present(self, queues: Sequence[str]) -> dict[str, QueueCounts | None]:
        """Count queues that were found before. Stops when too many of them were deleted: the rest is left out."""
        while self._deleted_at and self._now() - self._deleted_at[0] >= REFUSAL_SECONDS:
            self._deleted_at.popleft()
        allowed = MAX_DELETED - len(self._deleted_at)
        return await self._ask(queues, refusals=allowed) if allowed > 0 else {}

    async def _ask(self, queues: Sequence[str], *, refusals: int = 1) -> dict[str, QueueCounts | None]:
        if not queues:
            return {}
        counted, left = await count_until_refused(self._admin, queues, refusals=refusals)
        for queue in set(queues).difference(left):
            if counted.get(queue) is None and queue in self._present:
                self._deleted_at.append(self._now())
                if self._listed is not None:
                    self._list_again_at = self._now()
            self._note(queue, counted.get(queue), was_missing=queue in counted)
        return counted

    async def _ask_slowly(self, queues: Sequence[str]) -> dict[str, QueueCounts | None]:
        """Ask one by one until the broker refuses one; the rest of the result is what is still known."""
        counted: dict[str, QueueCounts | None] = {}
        for queue in self._in_turn(queues):
            if self._now() < self._next_refusal_at and not self._is_first(queue):
                break
            counted |= await self._ask([queue])
            if counted.get(queue) is None:
                counted.pop(queue, None)
                self._next_refusal_at = self._now() + REFUSAL_SECONDS
        return counted | dict.fromkeys(
            queue for queue in queues if queue not in counted and self._is_known_missing(queue)
        )

    def _in_turn(self, queues: Iterable[str]) -> list[str]:
        """Queues without an answer first, then those refused once, then the oldest answers."""
        never = _Missing(0, float("-inf"), was_missing=False)

        def rank(queue: str) -> tuple[int, float]:
            known = self._missing.get(queue, never)
            return min(known.refusals, 2), known.last_asked_at

        return sorted(queues, key=rank)

    def _is_hidden(self, queue: str) -> bool:
        """The broker refuses access to it."""
        known = self._missing.get(queue)
        return known is not None and not known.was_missing

    def _is_first(self, queue: str) -> bool:
        return self._asks_all_once and queue not in self._missing

    def _is_known_missing(self, queue: str) -> bool:
        known = self._missing.get(queue)
        if known is None or not known.was_missing:
            return False
        is_sure = known.refusals > 1 or self._asks_all_once
        return is_sure and self._now() - known.last_asked_at < MISSING_KEPT_SECONDS

    def _note(self, queue: str, counts: QueueCounts | None, *, was_missing: bool) -> None:
        if counts is not None:
            self._present.add(queue)
            self._missing.pop(queue, None)
            return
        self._present.discard(queue)
        before = self._missing.get(queue)
        refusals = 1 if before is None else before.refusals + 1
        self._missing[queue] = _Missing(refusals, self._now(), was_missing)
