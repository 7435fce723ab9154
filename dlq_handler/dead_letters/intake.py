"""Receive dead letters from the intake queue, have them decided, acknowledge them after the commit.

Promises: a delivery is acknowledged only after the transaction that recorded it. An outage of a server, or a missing
right, never acknowledges a dead letter. During an outage of the database dead letters are held for at most
`pause.database_outage_seconds`, then return to the queue. While the brake holds or the safety gate is closed they
return at once, and no more are received. Canaries are recorded as received and acknowledged, never decided.

A second intake receives the messages of the retired queue (retired.py). It reports its own loop and its own part of
readiness, knows no canaries, and is not counted as the intake.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol, TypeVar

import structlog

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.consumer import QueueConsumer, QueueMissing
from dlq_handler.broker.delivery import Delivery, RawMessage
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.leadership import worst_error
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.options import SHADOW_KEY_PREFIX, BatchOptions, IntakeOptions, PauseOptions
from dlq_handler.dead_letters.parse import read_dead_letter
from dlq_handler.dead_letters.record import Entry
from dlq_handler.dead_letters.recorder import DeferringRecorder
from dlq_handler.dead_letters.rescued import as_retired
from dlq_handler.endings.ender import Committed, Ender
from dlq_handler.errors import Braked, Contended, GateClosed, TooSlow, Unavailable
from dlq_handler.health import Readiness, bounded, heartbeat, locked
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.loop import Backoff, every, pause
from dlq_handler.metrics import Metrics
from dlq_handler.tasks import task_group
from dlq_handler.topology.blueprint import RETIRED_QUEUE
from dlq_handler.topology.canary_watch import CanaryRecorder

log = structlog.get_logger()

LOOP = "dead-letter-intake"
RETIRED_LOOP = "retired-queue-intake"

# Parts of readiness.
PART = "consumer"
RETIRED_PART = "retired_consumer"

Written = TypeVar("Written")

# After a failed batch the intake opens with this prefetch, and each batch that succeeds multiplies it: a cycle of
# failures wears out the delivery limit of few dead letters.
CAREFUL_PREFETCH = 1
WIDENING_FACTOR = 10

# A bound on memory.
MOST_COUNTED_ALONE = 1000

# How long a dead letter waits whose execution is locked, or which the brake has no room for.
POSTPONE_SECONDS = 1.0

# After a failed batch the intake counts as working again when it was open for this long without a dead letter.
PROVING_SECONDS = 5.0

# How long a batch that met the brake or the safety gate waits for the others to commit and acknowledge.
FINISH_SECONDS = 5.0


class QueueKeeper(Protocol):
    """Keeps a queue declared and bound."""

    def reapply_now(self) -> None: ...


class LetterCheck(Protocol):
    """Completes dead letters with what the broker says just before their decision."""

    async def complete(self, letters: Sequence[DeadLetter]) -> Sequence[DeadLetter]:
        """The same dead letters, with the same keys, in the same order. Raises `Unavailable`."""


class DeadLetterIntake:
    def __init__(
        self,
        consumer: QueueConsumer[DeadLetter],
        ender: Ender[DeadLetter, Entry],
        keeper: QueueKeeper,
        canaries: CanaryRecorder | None,
        pauses: PauseOptions,
        *,
        readiness: Readiness,
        metrics: Metrics,
        deferring: tuple[DeferringRecorder, Ender[DeadLetter, Entry]] | None = None,
        check: LetterCheck | None = None,
        batches_at_once: int = 2,
    ) -> None:
        """`deferring`: None where a dead letter that the broker drops is no loss, as in shadow mode. `check`: set for
        the retired queue, which no canary is sent through.
        """
        self._check = check
        self._loop, self._part = (LOOP, PART) if check is None else (RETIRED_LOOP, RETIRED_PART)
        self._canaries, self._deferring = canaries, deferring
        # How often a dead letter was too slow alone, by key: a classic queue counts no deliveries.
        self._too_slow_alone: Counter[str] = Counter()
        self._consumer, self._ender, self._keeper = consumer, ender, keeper
        self._pauses, self._readiness, self._metrics = pauses, readiness, metrics
        self._batches_at_once = batches_at_once
        # After a failed batch: wait before the next opening, and open with a small prefetch.
        self._must_pause = False
        self._is_careful = False
        # One batch at a time waits for dead letters, so that batches fill.
        self._turn = asyncio.Lock()
        self._batches_in_hand = 0
        self._none_in_hand = asyncio.Event()
        self._failed_batches = Backoff(first_seconds=1.0, most_seconds=30.0)

    async def run(self, stop: asyncio.Event) -> None:
        try:
            await every(0, lambda: self.tick(stop), stop, name=self._loop)
        finally:
            await self._close("stopped")

    async def tick(self, stop: asyncio.Event) -> None:
        """Open the intake, or process some batches. A tick that succeeds resets the pauses after failures."""
        try:
            if self._consumer.is_open:
                await self._process_batches(stop)
            elif not await self._pause_if_needed(stop):
                # Never test by consuming: each delivery that returns to the queue counts against the delivery limit.
                await self._ender.check()
                await self._open()
        except BaseException as error:
            # After any error: dead letters that are neither processed nor returned would fill the prefetch window.
            await self._close(str(error) or type(error).__name__)
            raise

    async def _process_batches(self, stop: asyncio.Event) -> None:
        """Several at once: while the database works on one batch, another is decided and acknowledged here."""
        try:
            async with task_group() as group:
                for number in range(self._batches_at_once):
                    group.create_task(self._watch_batch(stop, number), name=f"batch-{number}")
        except BaseExceptionGroup as failed:
            raise worst_error(failed.exceptions, loop=self._loop) from failed

    async def _watch_batch(self, stop: asyncio.Event, number: int) -> None:
        # A heartbeat of its own: a batch that hangs would otherwise hide behind another one that waits.
        with heartbeat(f"{self._loop}, batch {number}"):
            await self._process_batch(stop)

    async def _process_batch(self, stop: asyncio.Event) -> None:
        is_unproven, is_proof = self._failed_batches.failures > 0, True
        async with locked(self._turn, at_most_seconds=None):
            batch = await self._consumer.next_batch(stop, PROVING_SECONDS if is_unproven else None)
        if batch:
            try:
                with self._in_hand():
                    is_proof = await self._process(batch, stop)
            except (Braked, GateClosed):
                # The batch did not fail: both are checked before the intake opens again. Raising it cancels the other
                # batches, and one that has just committed would be received again.
                with suppress(TimeoutError):
                    async with bounded(FINISH_SECONDS):
                        await self._none_in_hand.wait()
                raise
            except Exception:
                # Not on cancellation, which follows from the failure of another batch or of the channel.
                self._must_pause = self._is_careful = True
                raise
            if is_proof:
                self._is_careful = False
                await self._consumer.grow_prefetch(WIDENING_FACTOR)
        if is_unproven and is_proof:
            self._failed_batches.reset()
            self._report_consuming()

    @contextmanager
    def _in_hand(self) -> Iterator[None]:
        self._batches_in_hand += 1
        self._none_in_hand.clear()
        try:
            yield
        finally:
            self._batches_in_hand -= 1
            if self._batches_in_hand == 0:
                self._none_in_hand.set()

    async def _pause_if_needed(self, stop: asyncio.Event) -> bool:
        """Wait once after a failed batch. Returns True when it is time to stop.

        Opening succeeds in that case, which proves nothing: without a growing pause, one dead letter that cannot be
        recorded would be received and returned twice a second.
        """
        if not self._must_pause:
            return False
        self._must_pause = False
        return await pause(stop, self._failed_batches.next_seconds())

    async def _open(self) -> None:
        try:
            await self._consumer.open(prefetch=CAREFUL_PREFETCH if self._is_careful else None)
        except QueueMissing:
            # It was deleted, or the broker was reset: the keeper declares it now, not at its next full pass.
            self._keeper.reapply_now()
            raise
        # During the pause the queue may have been deleted and created again, without its bindings.
        self._keeper.reapply_now()
        self._readiness.report("broker", ok=True, detail="connected")
        if self._failed_batches.failures == 0:
            self._report_consuming()
        if self._check is None:
            self._metrics.intake_opened.inc()
        log.info("intake.opened", queue=self._consumer.queue)

    def _report_consuming(self) -> None:
        self._readiness.report(self._part, ok=True, detail=f"consuming {self._consumer.queue}")

    async def _close(self, explanation: str) -> None:
        if self._consumer.is_open:
            log.info("intake.closed", queue=self._consumer.queue, explanation=explanation)
            # The queue may have been deleted: it must be bound during the pause too.
            self._keeper.reapply_now()
        self._readiness.report(self._part, ok=False, detail=explanation)
        await self._consumer.close()

    async def _process(self, batch: Sequence[Delivery[DeadLetter]], stop: asyncio.Event) -> bool:
        """Decide, commit, acknowledge, in as many transactions as a slow database needs.

        A short outage is waited for; in a long one the dead letters return to the queue. So does the rest of the batch
        when it is time to stop. Returns False when all were deferred: that does not prove that deciding works.
        """
        rest = await self._defer(await self._receive_canaries(batch, stop), stop)
        if batch and not rest and not any(delivery.item.is_canary for delivery in batch):
            return False
        while rest:
            try:
                rest = await self._commit_first(self._ender, rest, stop)
            except TooSlow:
                self._count_alone(rest[0].item)
                raise
            if stop.is_set():
                break
        return True

    async def _receive_canaries(
        self, batch: Sequence[Delivery[DeadLetter]], stop: asyncio.Event
    ) -> Sequence[Delivery[DeadLetter]]:
        """Record and acknowledge the canaries. Returns the others."""
        canaries = [delivery for delivery in batch if delivery.item.is_canary]
        if self._canaries is None or not canaries:
            return batch
        recorder = self._canaries
        ids = [one for delivery in canaries if (one := delivery.item.canary_id) is not None]
        await self._retry(lambda: recorder.record_received(ids), len(canaries), stop)
        await self._consumer.acknowledge(canaries)
        self._metrics.canaries_arrived.inc(len(canaries))
        return [delivery for delivery in batch if not delivery.item.is_canary]

    async def _defer(
        self, batch: Sequence[Delivery[DeadLetter]], stop: asyncio.Event
    ) -> Sequence[Delivery[DeadLetter]]:
        """Record those that were delivered too often, undecided, and acknowledge them. Returns the others."""
        if self._deferring is None:
            return batch
        recorder, ender = self._deferring
        counts = self._too_slow_alone
        due: Sequence[Delivery[DeadLetter]] = [
            one for one in batch if recorder.is_due(one.item, own_count=counts[one.item.key])
        ]
        if not due:
            return batch
        tags = {delivery.tag for delivery in due}
        while due:
            due = await self._commit_first(ender, due, stop)
        return [delivery for delivery in batch if delivery.tag not in tags]

    def _count_alone(self, letter: DeadLetter) -> None:
        if len(self._too_slow_alone) >= MOST_COUNTED_ALONE:
            self._too_slow_alone.clear()
        self._too_slow_alone[letter.key] += 1

    async def _commit_first(
        self,
        ender: Ender[DeadLetter, Entry],
        batch: Sequence[Delivery[DeadLetter]],
        stop: asyncio.Event,
    ) -> Sequence[Delivery[DeadLetter]]:
        """Commit and acknowledge as many as one transaction takes. Returns the others. Raises `TooSlow` at once."""
        letters = [delivery.item for delivery in batch]

        async def commit() -> Committed[Entry]:
            # Again at each attempt: during an outage a worker may have got its queue back.
            checked = letters if self._check is None else await self._check.complete(letters)
            return await ender.commit_first(checked)

        committed = await self._retry(commit, len(letters), stop)
        done = batch[: committed.items]
        self._consumer.postpone(
            [delivery for delivery in done if delivery.item.key in committed.postponed],
            POSTPONE_SECONDS,
        )
        settled = [delivery for delivery in done if delivery.item.key not in committed.postponed]
        # Only after the commit: a crash in between redelivers, and the key of the dead letter absorbs the repeat.
        await self._consumer.acknowledge(settled)
        for delivery in settled:
            self._too_slow_alone.pop(delivery.item.key, None)
        return batch[committed.items :]

    async def _retry(
        self, write: Callable[[], Awaitable[Written]], count: int, stop: asyncio.Event
    ) -> Written:
        """Repeat `write` through a short outage of the database. `count`: dead letters that are written."""
        backoff = Backoff(first_seconds=0.1, most_seconds=5.0)
        return_at = monotonic_seconds() + self._pauses.database_outage_seconds
        while True:
            try:
                written = await write()
            except (Braked, GateClosed, TooSlow):
                raise
            except (Unavailable, Contended) as error:
                if backoff.failures == 0:
                    log.warning("batch.delayed", letters=count, error=str(error))
                    self._readiness.report(
                        self._part, ok=False, detail=f"dead letters wait for the database: {error}"
                    )
                if monotonic_seconds() >= return_at or await pause(stop, backoff.next_seconds()):
                    component = error.component if isinstance(error, Unavailable) else "database"
                    raise Unavailable(component, f"letters go back to the queue: {error}") from error
            else:
                if backoff.failures:
                    self._report_consuming()
                return written


class DeadLetterConsumers:
    """Makes consumers of dead letters: of the intake queue, and of the queues of workers that are drained."""

    def __init__(
        self,
        address: BrokerAddress,
        admin: AdminConnection,
        intake: IntakeOptions,
        batch: BatchOptions,
        *,
        prefetch: int,
        tag: str,
        is_shadow: bool = False,
    ) -> None:
        self._address, self._admin, self._intake, self._batch = address, admin, intake, batch
        self._prefetch, self._tag = prefetch, tag
        self._key_prefix = SHADOW_KEY_PREFIX if is_shadow else ""

    def of_queue(self, queue: str, *, priority: int) -> QueueConsumer[DeadLetter]:
        """A consumer that is not open yet."""
        return self._of(queue, priority, self._read)

    def of_retired_queue(self, names: WorkerQueueNames) -> QueueConsumer[DeadLetter]:
        return self._of(RETIRED_QUEUE, 0, lambda raw: as_retired(self._read(raw), names))

    def _read(self, raw: RawMessage) -> DeadLetter:
        return read_dead_letter(
            raw, body_limit_bytes=self._intake.stored_body_bytes, key_prefix=self._key_prefix
        )

    def _of(
        self, queue: str, priority: int, read: Callable[[RawMessage], DeadLetter]
    ) -> QueueConsumer[DeadLetter]:
        return QueueConsumer(
            self._address,
            self._admin,
            queue=queue,
            prefetch=self._prefetch,
            batch_size=self._batch.size,
            batch_wait_seconds=self._batch.wait_ms / 1000,
            max_bytes=self._intake.buffer_bytes,
            read=read,
            max_body_bytes=self._intake.max_body_bytes,
            consumer_priority=priority,
            consumer_tag=self._tag,
        )
