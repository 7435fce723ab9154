"""Decider a page of executions that may be stale, and write what follows: one transaction = looks at workers + status
changes + decision records + outbox entries + the leader's lease + the brake's count.

Promises: a row that the database refuses is isolated by halving the page, recorded as `update_failed` and left alone
until it is due; it never takes others with it. A row that somebody has locked is left to the next scan. In shadow mode
records and looks are all that is written. Never: decides anything itself, or asks the broker inside a transaction.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import structlog

from dlq_handler.broker.publish.publishes import PublishView
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.database.transaction import Transaction
from dlq_handler.endings.batch_size import BatchSize
from dlq_handler.endings.outbox_sql import OutboxEntry, add_to_outbox
from dlq_handler.endings.relay import OutboxRelay
from dlq_handler.errors import RowRejected, TooSlow
from dlq_handler.host import executions_sql
from dlq_handler.host.end_executions_sql import end_executions
from dlq_handler.host.ending import ending
from dlq_handler.host.execution import Execution
from dlq_handler.host.executions_sql import LockedView
from dlq_handler.host.messages import Destination
from dlq_handler.host.stale_sql import Candidate
from dlq_handler.metrics import Metrics
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate_service import Gate
from dlq_handler.timeouts import decisions_sql
from dlq_handler.timeouts.case import StalePolicy
from dlq_handler.timeouts.cases import Processes, Sights, gather_cases
from dlq_handler.timeouts.decide import decide_stale
from dlq_handler.timeouts.decision import End, StaleRecord, record_of, refused_record
from dlq_handler.timeouts.result import stale_result
from dlq_handler.workers import looks_sql
from dlq_handler.workers.look import WorkerLook

log = structlog.get_logger()

TOLD_ONE_BY_ONE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleDecisionPolicy:
    stale: StalePolicy
    replica: str
    destination: Destination
    is_shadow: bool = False
    page_size: int = 1000
    """The most candidates that a caller gives at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Candidates, what the broker says of their workers, and the looks of this scan so far."""

    candidates: Sequence[Candidate]
    sights: Sights
    looks: dict[int, WorkerLook]
    """Grows as pages are committed: a scan looks once at each worker, however many pages it is on."""
    longest_ttl_ms: int | None = None
    """The longest TTL of any worker queue that was seen."""
    intake_undrained_seconds: float | None = None
    """How long dead letters may have waited unread; None: they do not."""
    processes: Processes = field(default_factory=dict)

    @property
    def worker_ids(self) -> set[int]:
        return {one.worker_id for one in self.candidates if one.worker_id is not None}

    def halves(self) -> "tuple[Page, Page]":
        return self.cut(len(self.candidates) // 2)

    def cut(self, count: int) -> "tuple[Page, Page]":
        """The first so many candidates, and the others."""
        return self._of(self.candidates[:count]), self._of(self.candidates[count:])

    def _of(self, candidates: Sequence[Candidate]) -> "Page":
        return replace(self, candidates=candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDone:
    ended: int = 0
    left_out: int = 0
    """Those that the brake had no room for."""
    too_slow: TooSlow | None = None
    """Why the candidates behind one are not decided: that one alone exceeded the time limit of a transaction."""

    def __add__(self, other: "PageDone") -> "PageDone":
        return PageDone(
            ended=self.ended + other.ended,
            left_out=self.left_out + other.left_out,
            too_slow=self.too_slow or other.too_slow,
        )


class StaleDecider:
    def __init__(
        self,
        database: Database,
        policy: StaleDecisionPolicy,
        *,
        leadership: Leadership,
        brake: Brake,
        gate: Gate,
        metrics: Metrics,
        relay: OutboxRelay | None,
        publishes: Callable[[], PublishView] = PublishView,
    ) -> None:
        self._database, self._policy, self._leadership = database, policy, leadership
        self._brake, self._gate, self._metrics, self._relay = brake, gate, metrics, relay
        self._size = BatchSize(policy.page_size, limit_seconds=database.statement_seconds)
        self._publishes = publishes

    async def commit(self, page: Page) -> PageDone:
        """In as many transactions as a slow database needs.

        Raises `LeaseLost`, `Braked`, `GateClosed`, another `Unavailable`, or `Contended`: then the scan is over. It is
        over after an answer with `too_slow` too.
        """
        parts: list[PageDone] = []
        await self._commit_all(page, parts)
        return sum(parts, PageDone())

    async def _commit_all(self, page: Page, parts: list[PageDone]) -> None:
        """Adds each transaction to `parts` when it is committed."""
        rest = page
        while rest.candidates:
            part, behind = rest.cut(self._size.now)
            try:
                await self._commit_isolating(part, parts)
            except TooSlow as error:
                self._size.too_slow(len(part.candidates))
                if len(part.candidates) == 1:
                    parts.append(await self._leave(part.candidates[0], error))
                    return
                log.warning(
                    "page.halved", executions=len(part.candidates), size=self._size.now, error=error.what
                )
                continue
            rest = behind

    async def _leave(self, candidate: Candidate, error: TooSlow) -> PageDone:
        """Until its next try, as a refused one: otherwise every scan would end at this execution."""
        if self._policy.is_shadow:
            raise error
        await self._record_refused(candidate, error)
        return PageDone(too_slow=error)

    async def _commit_isolating(self, page: Page, parts: list[PageDone]) -> None:
        try:
            parts.append(await self._commit_together(page))
        except RowRejected as error:
            if len(page.candidates) == 1:
                await self._record_refused(page.candidates[0], error)
                return
        else:
            return
        for half in page.halves():
            await self._commit_isolating(half, parts)

    async def _commit_together(self, page: Page) -> PageDone:
        started = monotonic_seconds()
        async with self._database.transaction() as tx:
            room = None if self._policy.is_shadow else await self._brake.room(tx)
            view = await self._look(tx, [candidate.id for candidate in page.candidates])
            gathered = await gather_cases(
                tx,
                view,
                sights=page.sights,
                looks=page.looks,
                watched_seconds=self._gate.watched_seconds,
                steady_since=self._gate.steady_since,
                longest_ttl_ms=page.longest_ttl_ms,
                publishes=self._publishes(),
                intake_undrained_seconds=page.intake_undrained_seconds,
                processes=page.processes,
                policy=self._policy.stale,
                is_shadow=self._policy.is_shadow,
            )
            await looks_sql.keep_looks(tx, gathered.new_looks.values(), is_shadow=self._policy.is_shadow)
            decisions = [(case.execution, decide_stale(case)) for case in gathered.cases]
            ends = [(execution, decision) for execution, decision in decisions if isinstance(decision, End)]
            fitting = ends if room is None else ends[:room]
            left_out = len(ends) - len(fitting)
            records, notices = await self._write(tx, fitting, view.now)
            # Not before, so that two pages can be written side by side: the lease is locked from here to the commit.
            await self._leadership.fence(tx)
            await self._brake.note(tx, len(records), left_out)
        self._size.done(len(page.candidates), monotonic_seconds() - started)
        page.looks.update(gathered.new_looks)
        self._tell(records)
        if self._relay is not None:
            self._relay.offer(notices)
        return PageDone(ended=len(records), left_out=left_out)

    async def _look(self, tx: Transaction, ids: Iterable[int]) -> LockedView:
        asked_at = monotonic_seconds()
        look_at = executions_sql.read_executions if self._policy.is_shadow else executions_sql.lock_executions
        view = await look_at(tx, ids)
        self._gate.see_clock(view.now, asked_at=asked_at, answered_at=monotonic_seconds())
        # A scan takes minutes in a flood, and the gate may have closed since it began.
        self._gate.check()
        return view

    async def _write(
        self, tx: Transaction, decisions: Sequence[tuple[Execution, End]], now: datetime
    ) -> tuple[list[StaleRecord], list[OutboxEntry]]:
        policy = self._policy
        records = [
            record_of(execution, decision, now=now, replica=policy.replica, is_shadow=policy.is_shadow)
            for execution, decision in decisions
        ]
        if policy.is_shadow:
            new = await decisions_sql.record(tx, records)
            return [one for one in records if one.execution_id in new], []
        endings = [
            ending(
                execution,
                decision.becomes,
                stale_result(execution, decision, now),
                destination=policy.destination,
                now=now,
            )
            for execution, decision in decisions
        ]
        changed = await end_executions(tx, endings)
        records = [one for one in records if one.execution_id in changed]
        await decisions_sql.record(tx, records)
        messages = [one.message for one in endings if one.execution.id in changed]
        lease = self._relay.lease_for(len(messages)) if self._relay is not None else None
        entries = await add_to_outbox(tx, messages, lease=lease)
        return records, entries

    async def _record_refused(self, candidate: Candidate, error: RowRejected | TooSlow) -> None:
        """Never in shadow mode, where nothing is changed that could be refused."""
        log.error("stale_execution.refused", execution_id=candidate.id, error=str(error))
        async with self._database.transaction() as tx:
            await self._leadership.fence(tx)
            view = await executions_sql.lock_executions(tx, [candidate.id])
            execution = view.executions.get(candidate.id)
            if execution is None:
                return
            attempts = 1 + await decisions_sql.refusals(tx, execution.id, execution.updated)
            record = refused_record(
                execution, str(error), attempts=attempts, now=view.now, replica=self._policy.replica
            )
            await decisions_sql.record(tx, [record])
        self._metrics.stale_executions.labels(record.original_status, record.outcome).inc()

    def _tell(self, records: Sequence[StaleRecord]) -> None:
        executions: dict[str, list[int]] = {}
        for record in records:
            self._metrics.stale_executions.labels(record.original_status, record.outcome).inc()
            executions.setdefault(record.outcome.value, []).append(record.execution_id)
        is_shadow = self._policy.is_shadow
        if len(records) > TOLD_ONE_BY_ONE:
            # A flood in one line; the records say the rest.
            log.info("page.decided", executions=executions, is_shadow=is_shadow)
            return
        for record in records:
            log.info(
                "stale_execution.decided",
                execution_id=record.execution_id,
                outcome=record.outcome.value,
                original_status=record.original_status,
                worker_id=record.worker_id,
                explanation=record.explanation,
                is_shadow=is_shadow,
            )
