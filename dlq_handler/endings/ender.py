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

To put a subject on it, write a `Recorder` and its `Batch` (recording.py), and construct `Ender(database, writer,
recorder, batch_size)`. The writer is chosen once, in app.py: live, shadow mode, or records only (writers.py).

Promises: an item that the database refuses is found by halving the batch, recorded by `Recorder.if_refused` and keeps
no other item waiting. On a slow database batches become smaller. `Ender` acknowledges nothing. Each
decision is its batch's.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, assert_never

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.database.lease_sql import database_time
from dlq_handler.endings.recording import (
    CONTENT_ERRORS,
    Applied,
    Item,
    Proposal,
    Record,
    Recorder,
    Refusal,
    Step,
)
from dlq_handler.endings.writers import Writer
from dlq_handler.errors import Contended, GrantsMissing, TooSlow, Unavailable
from dlq_handler.host.grants_sql import missing_grants
from dlq_handler.host.messages import Ending, ExecutionMessage
from dlq_handler.safety.brake import split_by_room

log = structlog.get_logger()

# Full transactions in a row, each within this part of the time limit, before the size doubles.
QUICK_IN_A_ROW = 3
QUICK_PART = 1 / 3

# Transactions in a row that succeed after a refusal: then the refused item is found, or the refusal was a passing one.
SUCCESSES_AFTER_REFUSAL = 2


class BatchSize:
    """How many items one transaction takes.

    Two things make it smaller. A database that is too slow halves the size; the size that worked is kept, and doubles
    again only after some transactions in a row that were quick enough to do twice as much. An item that the database
    refuses is found by halving too: after the half that succeeds comes the half that has it. When it is found, each
    transaction that succeeds doubles the size again.
    """

    def __init__(self, most: int, *, limit_seconds: float) -> None:
        """`limit_seconds`: the configured limit. A transaction may be cancelled long before it, by an administrator."""
        self.most = most
        self._limit_seconds = limit_seconds
        self._not_too_slow = self._isolating = most
        self._quick = 0
        self._passed = SUCCESSES_AFTER_REFUSAL

    @property
    def now(self) -> int:
        return min(self._not_too_slow, self._isolating)

    def too_slow(self, count: int) -> None:
        """A transaction over this many items exceeded its time limit."""
        self._not_too_slow = min(self._not_too_slow, max(1, count // 2))
        self._quick = 0

    def refused(self, count: int) -> None:
        """The database refused one of this many items."""
        self._isolating = max(1, count // 2)
        self._passed = SUCCESSES_AFTER_REFUSAL if count == 1 else 0

    def done(self, count: int, seconds: float) -> None:
        self._passed += 1
        if self._passed >= SUCCESSES_AFTER_REFUSAL:
            self._isolating = min(self.most, 2 * self._isolating)
        if self._not_too_slow >= self.most or count < self._not_too_slow:
            return
        self._quick = self._quick + 1 if seconds <= self._limit_seconds * QUICK_PART else 0
        if self._quick >= QUICK_IN_A_ROW:
            self._not_too_slow = min(self.most, self._not_too_slow * 2)
            self._quick = 0


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
        batch_size: int,
        *,
        leadership: Leadership | None = None,
    ) -> None:
        """`leadership`: for a subject that only the leader works on."""
        self._database, self._writer, self._recorder = database, writer, recorder
        self.size = BatchSize(batch_size, limit_seconds=database.statement_seconds)
        self._leadership = leadership
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
        part = items[: self.size.now]
        started = monotonic_seconds()
        try:
            committed = await self._commit_together(part)
        except TooSlow as error:
            self.size.too_slow(len(part))
            if len(part) == 1:
                await self._record_refused(part[0], error, self._recorder.if_too_slow)
                raise
            log.warning(
                "batch.halved",
                subject=self._recorder.subject,
                items=len(part),
                size=self.size.now,
                error=error.what,
            )
            return Committed()
        except GrantsMissing:
            self._were_grants_missing = True
            raise
        except CONTENT_ERRORS as error:
            self.size.refused(len(part))
            if len(part) == 1:
                return await self._record_refused(part[0], error, self._recorder.if_refused)
            return Committed()
        self.size.done(len(part), monotonic_seconds() - started)
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
            if writer.keeps_counts:
                await batch.count(tx)
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
