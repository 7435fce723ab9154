"""The one transaction that ends executions. Dead letters, reprocessing, the timeout monitor, unscheduled executions and
ends that another component did not publish all go through `Ender`.

The steps of one transaction, which are also its lock order (the only one in the product):

1. the brake's room (an advisory lock, only while there is little room), and the safety gate
2. execution rows, by id: locked, or only read in shadow mode
3. `Batch.decide`: the subject's own rows by key, then its decision about each item; the brake's room limits the ends
4. the guarded change of the executions, which also counts them for the brake
5. `Batch.record`: the subject's own records, by key
6. the outbox
7. `Batch.count`: counts that many transactions share, by id
8. the leader's lease, for subjects that only the leader works on
9. the brake's row, if something did not fit

Rows of the admission tables are never locked here.

To put a subject on it, write a `Recorder` and its `Batch`, and construct `Ender(database, writer, recorder, size)`. The
writer is chosen once, in app.py: live, shadow mode, or records only (writers.py).

Promises: an item that the database refuses is found by halving the batch, recorded by `Recorder.if_refused` and keeps
no other item waiting. On a slow database batches become smaller. Never: acknowledges or decides anything.
"""

from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, Protocol, TypeVar, assert_never

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.database.server_sql import database_time
from dlq_handler.database.transaction import Transaction
from dlq_handler.endings.batch_size import BatchSize
from dlq_handler.endings.refusal import CONTENT_ERRORS, Refusal
from dlq_handler.endings.writers import Writer
from dlq_handler.errors import Contended, GrantsMissing, TooSlow, Unavailable
from dlq_handler.host.ending import Ending
from dlq_handler.host.executions_sql import LockedView
from dlq_handler.host.grants_sql import missing_grants
from dlq_handler.host.messages import ExecutionMessage
from dlq_handler.safety.brake import split_by_room

log = structlog.get_logger()

Item = TypeVar("Item")
Record = TypeVar("Record")
Record_co = TypeVar("Record_co", covariant=True)
Item_contra = TypeVar("Item_contra", contravariant=True)

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


class Batch(Protocol[Record_co]):
    """What one transaction does for its subject. A new one for each transaction."""

    @property
    def execution_ids(self) -> Collection[int]:
        """The executions to lock."""

    @property
    def postponed(self) -> Collection[Hashable]:
        """Keys of items that wait for a later transaction, as `decide` found: their execution is locked elsewhere."""

    async def decide(self, tx: Transaction, view: LockedView) -> Sequence[Proposal]:
        """A message that was published for the same reason before must not be proposed again: a subject that ends
        nothing finds that out by writing its record here.
        """

    async def record(self, tx: Transaction, applied: Applied) -> Sequence[Record_co]:
        """Record the proposals, but for those that the brake has no room for."""

    async def count(self, tx: Transaction) -> None:
        """Add what was recorded to counts that many transactions share. Never called in shadow mode."""

    def observe(self, *, postponed: int, seconds: float) -> None:
        """The transaction is committed: set the metrics of the batch."""


Step = Callable[[Transaction, Item, Refusal, datetime], Awaitable[Record | None]]
"""Records a refused item; None: there is nothing to record."""


class Recorder(Protocol[Item_contra, Record]):
    """One subject: how its items are decided and recorded."""

    subject: str
    """In log lines, the plural of the items."""

    @property
    def if_refused(self) -> Sequence[Step[Item_contra, Record]]:
        """Record an item that the database refuses. Each step stores less than the one before it, and is tried when
        that was refused too.
        """

    @property
    def if_too_slow(self) -> Sequence[Step[Item_contra, Record]]:
        """The same for an item that alone exceeds the time limit. Empty: it is left as it is."""

    def batch(self, items: Sequence[Item_contra]) -> Batch[Record]: ...

    async def rehearse(self, tx: Transaction) -> None:
        """Change nothing, with every right that `Batch` needs on the tables of dlq-handler."""

    def log(self, records: Sequence[Record], now: datetime) -> None:
        """These are committed: log and count them."""

    def log_refused(self, item: Item_contra, refusal: Refusal) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Generic[Record]):
    items: int = 0
    """The first items of those given, which need no other transaction, but for those postponed."""
    records: Sequence[Record] = ()
    ended: int = 0
    postponed: frozenset[Hashable] = frozenset()
    """Keys of items to decide later: their execution is locked, or the brake has no room for them."""
    left_out: int = 0
    """How many of them the brake has no room for."""


@dataclass(slots=True)
class _Changes:
    """What the proposals of one transaction want to change."""

    endings: list[Ending] = field(default_factory=list)
    messages: list[ExecutionMessage] = field(default_factory=list)
    """Those without an end."""

    @classmethod
    def of(cls, proposals: Sequence[Proposal]) -> "_Changes":
        changes = cls()
        for proposal in proposals:
            match proposal.change:
                case Ending() as ending:
                    changes.endings.append(ending)
                case ExecutionMessage() as message:
                    changes.messages.append(message)
                case None:
                    pass
                case never:
                    assert_never(never)
        return changes


class Ender(Generic[Item, Record]):
    def __init__(
        self,
        database: Database,
        writer: Writer,
        recorder: Recorder[Item, Record],
        size: BatchSize,
        *,
        leadership: Leadership | None = None,
    ) -> None:
        """`leadership`: for a subject that only the leader works on."""
        self._database, self._writer, self._recorder = database, writer, recorder
        self._size, self._leadership = size, leadership
        self._were_grants_missing = False

    async def check(self) -> None:
        """Raises `Unavailable` when a batch would fail whatever its items: no answer, a right missing, the brake."""
        try:
            async with self._database.transaction() as tx:
                await self._writer.rehearse(tx)
                await self._recorder.rehearse(tx)
            if self._were_grants_missing:
                await self._check_grants()
        except Contended as error:
            raise Unavailable("database", f"the host's tables are locked: {error}") from error

    async def commit(self, items: Sequence[Item]) -> Committed[Record]:
        """All of them, in as many transactions as it takes. Raises as `commit_first` does."""
        done: list[Committed[Record]] = []
        rest = items
        while rest:
            done.append(await self.commit_first(rest))
            rest = rest[done[-1].items :]
        return Committed(
            items=sum(one.items for one in done),
            records=[record for one in done for record in one.records],
            ended=sum(one.ended for one in done),
            postponed=frozenset().union(*(one.postponed for one in done)),
            left_out=sum(one.left_out for one in done),
        )

    async def commit_first(self, items: Sequence[Item]) -> Committed[Record]:
        """As many of the first items as one transaction takes at this time: `Committed.items` of them. 0: they were too
        slow or refused together, and the next call takes fewer.

        Raises `TooSlow` when the first item alone exceeds the time limit. Raises another `Unavailable`, or `Contended`:
        then it is unknown whether it is committed, and calling again is safe.
        """
        part = items[: self._size.now]
        started = monotonic_seconds()
        try:
            committed = await self._commit_together(part)
        except TooSlow as error:
            self._size.too_slow(len(part))
            if len(part) == 1:
                await self._record_refused(part[0], error, self._recorder.if_too_slow)
                raise
            log.warning(
                "batch.halved",
                subject=self._recorder.subject,
                items=len(part),
                size=self._size.now,
                error=error.what,
            )
            return Committed()
        except GrantsMissing:
            self._were_grants_missing = True
            raise
        except CONTENT_ERRORS as error:
            self._size.refused(len(part))
            if len(part) == 1:
                return await self._record_refused(part[0], error, self._recorder.if_refused)
            return Committed()
        self._size.done(len(part), monotonic_seconds() - started)
        return committed

    async def _commit_together(self, items: Sequence[Item]) -> Committed[Record]:
        started = monotonic_seconds()
        writer, batch = self._writer, self._recorder.batch(items)
        async with self._database.transaction() as tx:
            room = await writer.room(tx)
            view = await writer.executions(tx, batch.execution_ids)
            proposals = await batch.decide(tx, view)
            fitting, left_out = _split(proposals, room)
            changes = _Changes.of(fitting)
            ended = await writer.end(tx, changes.endings)
            records = await batch.record(tx, Applied(ended=ended, left_out=left_out, now=view.now))
            messages = [one.message for one in changes.endings if one.execution.id in ended]
            entries = await writer.publish(tx, messages + changes.messages)
            await writer.count(tx, batch)
            if self._leadership is not None:
                await self._leadership.fence(tx)
            await writer.finish(tx, ended=len(ended), left_out=len(left_out))
        writer.offer(entries)
        postponed = left_out.union(batch.postponed)
        batch.observe(postponed=len(postponed), seconds=monotonic_seconds() - started)
        self._recorder.log(records, view.now)
        return Committed(
            items=len(items), records=records, ended=len(ended), postponed=postponed, left_out=len(left_out)
        )

    async def _record_refused(
        self, item: Item, error: Exception, steps: Sequence[Step[Item, Record]]
    ) -> Committed[Record]:
        """Raises `Unavailable` when every step is refused: the last one stores nothing that a sender chose."""
        if not steps:
            return Committed(items=1)
        refusal = Refusal.of(error)
        self._recorder.log_refused(item, refusal)
        for step in steps:
            try:
                async with self._database.transaction() as tx:
                    now = await database_time(tx)
                    record = await step(tx, item, refusal, now)
                    if self._leadership is not None:
                        await self._leadership.fence(tx)
            except CONTENT_ERRORS as again:
                refusal = Refusal.of(again)
            else:
                records = [] if record is None else [record]
                self._recorder.log(records, now)
                return Committed(items=1, records=records)
        raise Unavailable(
            "database", f"none of the {self._recorder.subject} can be recorded: {refusal.error}"
        )

    async def _check_grants(self) -> None:
        """The rehearsal does not find what the host's triggers write with the rights of dlq-handler's role. Where
        triggers have rights of their own, nothing is missing.
        """
        missing = await missing_grants(self._database)
        if missing:
            raise GrantsMissing("; ".join(missing))
        self._were_grants_missing = False


def _split(proposals: Sequence[Proposal], room: int | None) -> tuple[Sequence[Proposal], frozenset[Hashable]]:
    """The proposals that the brake has room for, in order, and the keys of the others. `room` None: no limit."""
    if room is None:
        return proposals, frozenset()
    wanted = [(one.execution_id, isinstance(one.change, Ending)) for one in proposals]
    fitting, left_out = split_by_room(wanted, room)
    return [proposals[one] for one in fitting], frozenset(proposals[one].key for one in left_out)
