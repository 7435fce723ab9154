"""Decider letters and write what follows: one transaction = status changes + letter records + outbox entries.

Promises: after `commit` returns, every letter it was given is on record or named in `held_over`. A letter that
cannot be written is isolated by halving the batch and recorded as `update_failed`; it never takes others with it. Brake
and gate are asked before anything is written. In shadow mode letter records are all that is written.
Never: acknowledges anything, or decides anything itself.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import add

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.batch_size import BatchSize
from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters import batch_sql
from dlq_handler.dead_letters.committed import Committed, Written
from dlq_handler.dead_letters.decide import Circumstances, worker_in_question
from dlq_handler.dead_letters.decide_batch import (
    Ruling,
    decide_batch,
    executions_found,
    first_of_each,
    split_rulings,
)
from dlq_handler.dead_letters.decision import LeaveAlone, Outcome
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.log import tell_of_letters
from dlq_handler.dead_letters.record import Entry, entries_of
from dlq_handler.dead_letters.record_refused import CONTENT_ERRORS, RefusedRecorder
from dlq_handler.dead_letters.repeats_sql import count_arrivals
from dlq_handler.endings.outbox_sql import OutboxEntry, add_to_outbox
from dlq_handler.errors import Contended, GrantsMissing, TooSlow, Unavailable
from dlq_handler.host import executions_sql, workers_sql
from dlq_handler.host.end_executions_sql import end_executions
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.executions_sql import LockedView
from dlq_handler.host.grants_sql import missing_grants
from dlq_handler.host.messages import Notice
from dlq_handler.host.worker import AvailabilityPolicy, Worker, WorkerQueueNames
from dlq_handler.metrics import Metrics
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate_service import Gate

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPolicy:
    replica: str
    lease_holder: str
    exchange: str
    routing_key: str
    lease_seconds: float
    availability: AvailabilityPolicy
    names: WorkerQueueNames
    is_shadow: bool = False
    """True: only put on record what would have been done."""
    batch_size: int = 500
    """The most dead letters that a caller gives at once."""


class LetterDecider:
    def __init__(
        self,
        database: Database,
        policy: DecisionPolicy,
        *,
        brake: Brake,
        gate: Gate,
        metrics: Metrics,
        may_lease: Callable[[int], bool] = lambda _: False,
        offer: Callable[[Sequence[OutboxEntry], float], None] = lambda _, __: None,
    ) -> None:
        """`may_lease(count)`: can so many entries be published at once? Otherwise they are written without a lease.

        `offer(entries, leased_at)` publishes committed entries that an error keeps from the caller.
        """
        self._database, self._policy, self._metrics, self._may_lease = database, policy, metrics, may_lease
        self._brake, self.gate, self._offer = brake, gate, offer
        self._refused = RefusedRecorder(
            database=database, replica=policy.replica, names=policy.names, is_shadow=policy.is_shadow
        )
        self._was_refused = False
        self.batch_size = BatchSize(policy.batch_size, limit_seconds=database.statement_seconds)
        """How many dead letters one transaction takes at this time: callers give no more at once."""
        self.decided = 0
        """Letters that this process has put on record, for whoever wants to know that there are more."""

    async def check(self) -> None:
        """Raises `Unavailable` when a batch would fail whatever its letters: no answer, a right missing, the brake."""
        self.gate.check()
        try:
            async with self._database.transaction() as tx:
                await executions_sql.rehearse(tx, is_shadow=self._policy.is_shadow)
                await batch_sql.rehearse(tx, is_shadow=self._policy.is_shadow)
                if not self._policy.is_shadow:
                    await self._brake.check_now(tx)
            if self._was_refused:
                await self._check_grants()
        except Contended as error:
            raise Unavailable("database", f"the host's tables are locked: {error}") from error

    async def _check_grants(self) -> None:
        """After a refusal only: the rehearsal does not see what the host's triggers need to write with our rights, and
        where they have rights of their own nothing is missing.
        """
        missing = await missing_grants(self._database)
        if missing:
            raise GrantsMissing("; ".join(missing))
        self._was_refused = False

    async def commit(self, letters: Sequence[DeadLetter]) -> Committed:
        """Raises `Unavailable` or `Contended`: then it is unknown whether it is written, and calling again is safe.

        After `TooSlow`, `batch_size` is smaller than the number of these dead letters, unless it was only one.
        """
        parts: list[Committed] = []
        try:
            await self._commit_isolating(letters, parts)
        except BaseException:
            # The caller does not get these, and their leases would hold up their completion events.
            for part in parts:
                self._offer(part.outbox, part.leased_at)
            raise
        return reduce(add, parts)

    async def _commit_isolating(self, letters: Sequence[DeadLetter], parts: list[Committed]) -> None:
        """Adds each transaction to `parts` when it is committed."""
        try:
            parts.append(await self._commit_together(letters))
        except TooSlow:
            self.batch_size.too_slow(len(letters))
            raise
        except GrantsMissing:
            self._was_refused = True
            raise
        except CONTENT_ERRORS as error:
            if len(letters) == 1:
                parts.append(await self._record_refused(letters[0], error))
                return
        else:
            return
        middle = len(letters) // 2
        # In order: two dead letters of one execution must be decided as they were delivered.
        await self._commit_isolating(letters[:middle], parts)
        await self._commit_isolating(letters[middle:], parts)

    async def _commit_together(self, letters: Sequence[DeadLetter]) -> Committed:
        started = monotonic_seconds()
        self.gate.check()
        async with self._database.transaction() as tx:
            room = await self.room(tx)
            arrivals = Counter(letter.key for letter in letters)
            repeated = await batch_sql.count_repeats(tx, arrivals)
            fresh = first_of_each(letters, repeated)
            view = await self.look(tx, fresh)
            open_letters = [letter for letter in fresh if letter.execution_id not in view.locked_elsewhere]
            rulings = await self.rule(tx, open_letters, view)
            self.gate.consider(executions_found(rulings))
            written = await self.write(tx, rulings, view.now, room=room)
            await self._record(tx, written.entries, arrivals, repeated)
            await self.note(tx, written)
        self.batch_size.done(len(letters), monotonic_seconds() - started)
        locked = (letter.key for letter in fresh if letter.execution_id in view.locked_elsewhere)
        held_over = written.left_out.union(locked)
        self._metrics.observe_batch(len(letters), len(held_over), monotonic_seconds() - started)
        self._metrics.dead_letter_repeats.inc(len(letters) - len(fresh))
        self._tell_of_letters(written.entries, view.now)
        return Committed(outbox=tuple(written.notices), leased_at=started, held_over=held_over)

    async def _record(
        self, tx: Transaction, entries: Sequence[Entry], arrivals: Mapping[str, int], known: Collection[str]
    ) -> None:
        """Late: others wait for these groups. `arrivals`: by key. `known`: keys that were on record before."""
        is_shadow = self._policy.is_shadow
        recorded = await batch_sql.record_letters(
            tx, entries, replica=self._policy.replica, is_shadow=is_shadow
        )
        more = {key: arrivals[key] - 1 for entry in recorded if arrivals[key := entry.letter.key] > 1}
        if more:
            await batch_sql.count_repeats(tx, more)
        if not is_shadow:
            repeats = {key: arrivals[key] for key in known}
            await count_arrivals(tx, recorded, repeats, names=self._policy.names)

    def _tell_of_letters(self, entries: Sequence[Entry], now: datetime) -> None:
        self.decided += len(entries)
        tell_of_letters(entries, now, self._metrics)

    async def room(self, tx: Transaction) -> int | None:
        """How many executions may be ended; None: any number. Raises `Braked`."""
        return None if self._policy.is_shadow else await self._brake.room(tx)

    async def note(self, tx: Transaction, written: Written) -> None:
        """Last of all in a transaction, as the brake wants it."""
        await self._brake.note(tx, written.changed, len(written.left_out))

    async def look(self, tx: Transaction, letters: Sequence[DeadLetter]) -> LockedView:
        ids = (letter.execution_id for letter in letters if letter.parse_error is None)
        asked_at = monotonic_seconds()
        look_at = executions_sql.read_executions if self._policy.is_shadow else executions_sql.lock_executions
        view = await look_at(tx, (number for number in ids if number is not None))
        self.gate.see_clock(view.now, asked_at=asked_at, answered_at=monotonic_seconds())
        return view

    async def rule(self, tx: Transaction, letters: Sequence[DeadLetter], view: LockedView) -> list[Ruling]:
        """The pure decision, with the rows it needs; only running executions need their workers looked up."""
        rulings = decide_batch(
            letters,
            executions=view.executions,
            workers=await self._workers_in_question(tx, letters, view),
            circumstances=Circumstances(
                link_age_seconds=self.gate.watched_seconds,
                availability=self._policy.availability,
                names=self._policy.names,
            ),
            now=view.now,
        )
        return [_never_written_over(ruling, view.unfamiliar) for ruling in rulings]

    async def write(
        self,
        tx: Transaction,
        rulings: Sequence[Ruling],
        now: datetime,
        *,
        room: int | None,
        attempts_before: int = 0,
    ) -> Written:
        fitting, left_out = split_rulings(rulings, room)
        endings = [ruling.ending for ruling in fitting if ruling.ending is not None]
        if self._policy.is_shadow:
            would = {ending.execution.id for ending in endings}
            entries = entries_of(fitting, changed=would, now=now)
            return Written(entries=entries, changed=0, notices=(), left_out=frozenset())
        changed = await end_executions(tx, endings)
        notices = await self._announce(tx, [one.notice for one in endings if one.execution.id in changed])
        return Written(
            entries=entries_of(fitting, changed=changed, now=now, attempts_before=attempts_before),
            changed=len(changed),
            notices=notices,
            left_out=frozenset(ruling.letter.key for ruling in left_out),
        )

    async def _announce(self, tx: Transaction, notices: Sequence[Notice]) -> list[OutboxEntry]:
        return await add_to_outbox(
            tx,
            notices,
            exchange=self._policy.exchange,
            routing_key=self._policy.routing_key,
            lease_holder=self._policy.lease_holder if self._may_lease(len(notices)) else None,
            lease_seconds=self._policy.lease_seconds,
        )

    async def _workers_in_question(
        self, tx: Transaction, letters: Sequence[DeadLetter], view: LockedView
    ) -> Mapping[int, Worker]:
        wanted = set()
        for letter in letters:
            execution = view.executions.get(letter.execution_id) if letter.execution_id is not None else None
            if execution is not None and execution.status is ExecutionStatus.RUNNING:
                worker_id = worker_in_question(letter, execution, self._policy.names)
                wanted |= set() if worker_id is None else {worker_id}
        return await workers_sql.read_workers(tx, wanted) if wanted else {}

    async def _record_refused(self, letter: DeadLetter, error: Exception) -> Committed:
        entry, now = await self._refused.record(letter, error)
        self._tell_of_letters([entry], now)
        return Committed(outbox=(), leased_at=monotonic_seconds())


def _never_written_over(ruling: Ruling, unfamiliar: Mapping[int, str]) -> Ruling:
    """A status that a newer host brought in says nothing to us, least of all that the row is missing."""
    status = unfamiliar.get(ruling.letter.execution_id) if ruling.letter.execution_id is not None else None
    if status is None or ruling.decision.outcome is not Outcome.UNKNOWN_EXECUTION:
        return ruling
    explanation = f"in status {status!r}, which this version does not know"
    return Ruling(letter=ruling.letter, decision=LeaveAlone(Outcome.LEFT_TO_MONITOR, explanation))
