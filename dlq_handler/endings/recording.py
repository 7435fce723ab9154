"""What a subject gives to the ending transaction (ender.py): a `Recorder`, and a `Batch` for each transaction.

Also here: which errors mean that an item cannot be processed because of its own content, when it is tried again, and
how decisions are logged.
"""

import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeVar

import structlog

from dlq_handler.database.transaction import Transaction
from dlq_handler.errors import RowRefused, TooSlow
from dlq_handler.host.executions_sql import LockedView
from dlq_handler.host.messages import Ending, ExecutionMessage

log = structlog.get_logger()

Item = TypeVar("Item")
Record = TypeVar("Record")

# The database refuses a row, or code meets values that it was not written for. Neither may stop the other items.
CONTENT_ERRORS = (
    RowRefused,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)

STACK_FRAMES = 20
FIRST_DELAY = timedelta(minutes=1)
MOST_DELAY = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why one item is not processed now."""

    error: str
    is_own_error: bool
    """True: an error in the code of dlq-handler. False: the answer of the database."""
    frames: tuple[str, ...] | None
    """Files and lines of an error in the code, without its message."""

    @classmethod
    def of(cls, error: Exception) -> "Refusal":
        if isinstance(error, RowRefused | TooSlow):
            return cls(error=str(error), is_own_error=False, frames=None)
        # The message of an error in the code may quote what the sender wrote: its type is enough.
        frames = traceback.extract_tb(error.__traceback__)[-STACK_FRAMES:]
        return cls(
            error=f"cannot be processed: {type(error).__name__}",
            is_own_error=True,
            frames=tuple(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames),
        )


def retry_delay(attempts: int) -> timedelta:
    """The pause after the `attempts`-th refusal; the first is 1."""
    # 64 minutes are past the hour already; without the inner limit a large count would overflow.
    return min(FIRST_DELAY * (1 << min(max(attempts - 1, 0), 6)), MOST_DELAY)


def next_attempt(now: datetime, attempts: int) -> datetime:
    return now + retry_delay(attempts)


Change = Ending | ExecutionMessage | None
"""What a decision changes: it ends the execution, or only publishes a message about it, or neither."""


class Proposal(Protocol):
    """The decision about one item, before it is known whether it fits and whether its change succeeds."""

    @property
    def key(self) -> Hashable:
        """Of the item."""

    @property
    def execution_id(self) -> int | None: ...

    @property
    def change(self) -> Change: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What became of the proposals of one transaction."""

    ended: AbstractSet[int]
    """The executions that were ended. A proposed end that is missing here met a row that was changed meanwhile."""
    left_out: frozenset[Hashable]
    """Keys of items that the brake has no room for."""
    now: datetime
    """The database's clock."""


class Batch(ABC, Generic[Record]):
    """What one transaction does for its subject. A new one for each transaction."""

    execution_ids: Collection[int] = ()
    """The executions to lock."""
    postponed: Collection[Hashable] = ()
    """Keys of items that wait for a later transaction, as `decide` found: their execution is locked elsewhere."""

    @abstractmethod
    async def decide(self, tx: Transaction, view: LockedView) -> Sequence[Proposal]:
        """A message that was published for the same reason before must not be proposed again: a subject that ends
        nothing finds that out by writing its record here.
        """

    @abstractmethod
    async def record(self, tx: Transaction, applied: Applied) -> Sequence[Record]:
        """Record the proposals, but for those that the brake has no room for."""

    async def count(self, tx: Transaction) -> None:
        """Add what was recorded to counts that many transactions share. Never called in shadow mode."""

    def observe(self, *, postponed: int, seconds: float) -> None:
        """The transaction is committed: set the metrics of the batch."""


Step = Callable[[Transaction, Item, Refusal, datetime], Awaitable[Record | None]]
"""Records a refused item; None: there is nothing to record."""


class Recorder(ABC, Generic[Item, Record]):
    """One subject: how its items are decided and recorded."""

    subject: str
    """In log lines, the plural of the items."""

    @property
    def if_refused(self) -> Sequence[Step[Item, Record]]:
        """Record an item that the database refuses. Each step stores less than the one before it, and is tried when
        that was refused too. Empty: the item is left as it is.
        """
        return ()

    @property
    def if_too_slow(self) -> Sequence[Step[Item, Record]]:
        """The same for an item that alone exceeds the time limit."""
        return ()

    @abstractmethod
    def batch(self, items: Sequence[Item]) -> Batch[Record]: ...

    async def rehearse(self, tx: Transaction) -> None:
        """Change nothing, with every right that `Batch` needs on the tables of dlq-handler."""

    @abstractmethod
    def log(self, records: Sequence[Record], now: datetime) -> None:
        """These are committed: log and count them."""

    def log_refused(self, item: Item, refusal: Refusal) -> None:
        """The item is recorded by one of the steps."""


# A line for each of thousands would hide every other line, and takes a fifth of the time of a batch.
MOST_SINGLE_LINES = 20


class Decided(Protocol):
    @property
    def outcome(self) -> str: ...

    @property
    def execution_id(self) -> int | None: ...


def log_together(subject: str, decided: Sequence[Decided], *, is_shadow: bool) -> bool:
    """One line for all decisions of a transaction, with the ids to search for. False: they are few, and the caller logs
    each. `is_shadow`: they are what would have been done.
    """
    if len(decided) <= MOST_SINGLE_LINES:
        return False
    executions: dict[str, list[int | None]] = {}
    for one in decided:
        executions.setdefault(str(one.outcome), []).append(one.execution_id)
    log.info("batch.decided", subject=subject, count=len(decided), executions=executions, is_shadow=is_shadow)
    return True
