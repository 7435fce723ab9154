"""The intake loop itself: what it does when opening works and the batch does not."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, cast
from uuid import UUID

import pytest

from dlq_handler.broker.delivery import Delivery
from dlq_handler.dead_letters import intake
from dlq_handler.dead_letters.intake import DeadLetterIntake
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.options import PauseOptions
from dlq_handler.dead_letters.record import Entry
from dlq_handler.endings.ender import BatchSize, Committed
from dlq_handler.errors import Braked, GateClosed, TooSlow
from dlq_handler.health import Readiness
from dlq_handler.rooms import new_metrics
from tests.support.builders import a_canary, a_dead_letter


class Source:
    """Always opens, always has a letter."""

    queue = "attune.dlx.queue"

    def __init__(self) -> None:
        self.is_open = False
        self.opened = 0
        self.prefetch = 0
        self.acknowledged = 0
        self.batch = [Delivery(1, 1, a_dead_letter())]

    async def open(self, *, prefetch: int | None = None) -> None:
        self.is_open = True
        self.opened += 1
        self.prefetch = prefetch or 1500

    async def grow_prefetch(self, factor: int) -> None:
        self.prefetch = min(1500, self.prefetch * factor)

    async def close(self) -> None:
        self.is_open = False

    async def next_batch(
        self, _: asyncio.Event, timeout_seconds: float | None = None
    ) -> list[Delivery[DeadLetter]]:
        return self.batch

    def postpone(self, deliveries: list[Delivery[DeadLetter]], _: float) -> None:
        assert deliveries == []

    async def acknowledge(self, deliveries: list[Delivery[DeadLetter]]) -> int:
        self.acknowledged += len(deliveries)
        return len(deliveries)


class Decider:
    """Fails a given number of times, by default with an unexpected error."""

    def __init__(self, failures: float, error: Exception | None = None) -> None:
        self.failures, self.error = failures, error or ValueError("a bug")
        self.batch_size = BatchSize(500, limit_seconds=30.0)
        self.commits = 0
        self.decided: list[DeadLetter] = []

    async def check(self) -> None:
        if isinstance(self.error, Braked | GateClosed) and self.commits and self.failures > 0:
            raise self.error

    async def commit_first(self, letters: Sequence[DeadLetter]) -> Committed[Entry]:
        self.commits += 1
        self.decided += letters
        self.failures -= 1
        if self.failures >= 0:
            raise self.error
        return Committed(items=len(letters))


class SlowDecider(Decider):
    """No transaction over more than `fits` dead letters is quick enough."""

    def __init__(self, fits: int) -> None:
        super().__init__(failures=0)
        self.fits = fits
        self.sizes: list[int] = []

    async def commit_first(self, letters: Sequence[DeadLetter]) -> Committed[Entry]:
        part = letters[: self.batch_size.now]
        self.sizes.append(len(part))
        if len(part) <= self.fits:
            return await super().commit_first(part)
        self.batch_size.too_slow(len(part))
        if len(part) == 1:
            raise TooSlow("query: canceling statement due to statement timeout (57014)")
        return Committed()


class BreaksWhenCalledOff(Decider):
    """The second batch meets a closed gate; the first one is called off over that, and meets a bug on its way out."""

    async def commit_first(self, letters: Sequence[DeadLetter]) -> Committed[Entry]:
        self.commits += 1
        if self.commits > 1:
            raise GateClosed("a standby")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise self.error from None
        raise AssertionError("it was not cancelled")


class CommitsAfterTheTrip(Decider):
    """The second batch meets the brake while the first one commits."""

    async def commit_first(self, letters: Sequence[DeadLetter]) -> Committed[Entry]:
        self.commits += 1
        if self.commits > 1:
            raise Braked("too many")
        while self.commits < 2:  # noqa: ASYNC110  # one turn of the loop at a time
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        return Committed(items=len(letters))


class Deaf:
    def reapply_now(self) -> None: ...


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of the handler after failed batches; the test does not wait."""
    seen: list[float] = []

    async def pause(stop: asyncio.Event, seconds: float) -> bool:
        seen.append(seconds)
        return stop.is_set()

    monkeypatch.setattr(intake, "pause", pause)
    return seen


def an_intake(
    source: Source,
    decide: Decider,
    readiness: Readiness,
    *,
    batches_at_once: int = 1,
    canaries: object = None,
    **more: Any,
) -> DeadLetterIntake:
    return DeadLetterIntake(
        cast("Any", source),
        cast("Any", decide),
        cast("Any", Deaf()),
        cast("Any", canaries),
        PauseOptions(),
        batches_at_once=batches_at_once,
        readiness=readiness,
        metrics=new_metrics(),
        **more,
    )


@pytest.mark.parametrize("batches_at_once", [1, 2, 3])
async def test_batches_that_always_fail_are_tried_ever_more_rarely(
    waits: list[float], batches_at_once: int
) -> None:
    source, readiness = Source(), Readiness()
    handler = an_intake(source, Decider(failures=float("inf")), readiness, batches_at_once=batches_at_once)
    stop = asyncio.Event()
    for _ in range(10):
        await handler.tick(stop)
        with pytest.raises(ValueError, match="a bug"):
            await handler.tick(stop)
        assert not source.is_open, "the letters are given back"
        assert not readiness.checks["consumer"].ok
    assert len(waits) == source.opened - 1 == 9
    assert min(waits[6:]) >= 15
    assert source.acknowledged == 0


@pytest.mark.parametrize("batches_at_once", [1, 2])
async def test_a_failed_batch_leaves_no_cancellation_behind(waits: list[float], batches_at_once: int) -> None:
    decide = Decider(failures=float("inf"), error=Braked("too many"))
    handler = an_intake(Source(), decide, Readiness(), batches_at_once=batches_at_once)
    await handler.tick(asyncio.Event())
    with pytest.raises(Braked):
        await handler.tick(asyncio.Event())
    task = asyncio.current_task()
    assert task
    assert task.cancelling() == 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()


async def test_one_batch_that_ends_makes_it_quick_and_ready_again(waits: list[float]) -> None:
    source, readiness = Source(), Readiness()
    handler = an_intake(source, Decider(failures=1), readiness)
    stop = asyncio.Event()
    await handler.tick(stop)
    with pytest.raises(ValueError, match="a bug"):
        await handler.tick(stop)
    seen = []
    for _ in range(2):
        await handler.tick(stop)
        seen.append(readiness.checks["consumer"].ok)
    assert seen == [False, True], "that it opened proves nothing"
    assert source.acknowledged == 1
    assert len(waits) == 1


@pytest.mark.parametrize("error", [Braked("too many"), GateClosed("a standby")], ids=["brake", "gate"])
async def test_brake_and_gate_send_letters_back_at_once_and_are_asked_before_the_next_is_taken(
    waits: list[float], error: Exception
) -> None:
    source, readiness = Source(), Readiness()
    decide = Decider(failures=float("inf"), error=error)
    handler = an_intake(source, decide, readiness)
    stop = asyncio.Event()
    await handler.tick(stop)
    for _ in range(5):
        with pytest.raises(type(error)):
            await handler.tick(stop)
        assert not source.is_open
        assert readiness.checks["consumer"].detail == str(error)
    assert (decide.commits, source.opened) == (1, 1), (
        "neither tried again with letters in hand, nor by taking some"
    )
    decide.failures = 0
    await handler.tick(stop)
    assert readiness.checks["consumer"].ok, "it was no failure of the batch: opening proves enough"
    await handler.tick(stop)
    assert source.acknowledged == 1
    assert waits == []


async def test_a_batch_that_commits_while_another_meets_the_brake_is_acknowledged(waits: list[float]) -> None:
    source = Source()
    handler = an_intake(source, CommitsAfterTheTrip(failures=0), Readiness(), batches_at_once=2)
    await handler.tick(asyncio.Event())
    with pytest.raises(Braked):
        await handler.tick(asyncio.Event())
    assert (source.acknowledged, source.is_open) == (1, False)


async def test_a_bug_in_one_batch_is_not_hidden_by_the_closed_gate_that_the_other_met(
    waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "FINISH_SECONDS", 0.01)
    handler = an_intake(Source(), BreaksWhenCalledOff(failures=0), Readiness(), batches_at_once=2)
    await handler.tick(asyncio.Event())
    with pytest.raises(ValueError, match="a bug"):
        await handler.tick(asyncio.Event())


async def test_canaries_are_recorded_as_received_and_acknowledged_and_not_decided(waits: list[float]) -> None:
    canary = Delivery(1, 1, a_canary(key="canary"))
    letter = Delivery(2, 1, a_dead_letter(key="letter"))
    source, decide, recorded = Source(), Decider(failures=0), list[UUID]()

    class Canaries:
        async def record_received(self, canary_ids: Collection[UUID]) -> None:
            recorded.extend(canary_ids)

    handler = an_intake(source, decide, Readiness(), canaries=Canaries())
    await handler.tick(asyncio.Event())
    for batch in ([canary], [canary, letter]):
        source.batch = batch
        await handler.tick(asyncio.Event())

    assert recorded == [canary.item.canary_id] * 2
    assert decide.decided == [letter.item]
    assert source.acknowledged == 3


async def test_a_canary_that_cannot_be_recorded_goes_back_like_a_dead_letter(waits: list[float]) -> None:
    source, readiness = Source(), Readiness()
    source.batch = [Delivery(1, 1, a_canary())]

    class Canaries:
        async def record_received(self, _: Collection[UUID]) -> None:
            raise ValueError("a bug")

    handler = an_intake(source, Decider(failures=0), readiness, canaries=Canaries())
    await handler.tick(asyncio.Event())
    with pytest.raises(ValueError, match="a bug"):
        await handler.tick(asyncio.Event())

    assert (source.acknowledged, source.is_open) == (0, False)


class Deferrer:
    def __init__(self, after: int) -> None:
        self.after = after
        self.recorded: list[str] = []

    def is_due(self, letter: DeadLetter, *, own_count: int = 0) -> bool:
        return max(letter.deliveries, own_count) >= self.after

    async def commit_first(self, letters: Sequence[DeadLetter]) -> Committed[Entry]:
        self.recorded += [letter.key for letter in letters]
        return Committed(items=len(letters))


def some_deliveries(count: int) -> list[Delivery[DeadLetter]]:
    return [Delivery(tag, 1, a_dead_letter(key=str(tag))) for tag in range(1, count + 1)]


async def test_a_batch_that_takes_too_long_is_ended_in_smaller_ones_without_going_back(
    waits: list[float],
) -> None:
    source, decide = Source(), SlowDecider(fits=7)
    handler = an_intake(source, decide, Readiness())
    await handler.tick(asyncio.Event())
    source.batch = some_deliveries(50)
    await handler.tick(asyncio.Event())

    assert decide.sizes == [50, 25, 12, *[6] * 8, 2]
    assert [letter.key for letter in decide.decided] == [str(tag) for tag in range(1, 51)], "in their order"
    assert (source.acknowledged, source.opened, source.is_open) == (50, 1, True)
    await handler.tick(asyncio.Event())
    assert decide.sizes[-9:] == [*[6] * 8, 2], "the size that worked is remembered"
    assert waits == []


async def test_what_was_committed_of_a_slow_batch_is_acknowledged_before_the_rest_fails(
    waits: list[float],
) -> None:
    source, decide = Source(), SlowDecider(fits=10)
    handler = an_intake(source, decide, Readiness())
    await handler.tick(asyncio.Event())
    source.batch = some_deliveries(40)
    decide.batch_size.too_slow(20)
    real_commit = decide.commit_first

    async def commit(letters: Sequence[DeadLetter]) -> Committed[Entry]:
        if len(decide.decided) >= 20:
            raise ValueError("a bug")
        return await real_commit(letters)

    decide.commit_first = commit  # type: ignore[method-assign]  # a decide that breaks halfway
    with pytest.raises(ValueError, match="a bug"):
        await handler.tick(asyncio.Event())

    assert (source.acknowledged, source.is_open) == (20, False)


async def test_one_dead_letter_that_takes_too_long_alone_goes_back_and_the_intake_waits(
    waits: list[float],
) -> None:
    source, decide, readiness = Source(), SlowDecider(fits=0), Readiness()
    handler = an_intake(source, decide, readiness)
    stop = asyncio.Event()
    for _ in range(3):
        await handler.tick(stop)
        with pytest.raises(TooSlow):
            await handler.tick(stop)
        assert not source.is_open
        assert not readiness.checks["consumer"].ok
    assert source.acknowledged == 0, "it is the database's trouble: nothing is acknowledged"
    assert len(waits) == 2


async def test_a_stop_ends_a_slow_batch_after_the_part_in_hand(waits: list[float]) -> None:
    source, decide = Source(), SlowDecider(fits=10)
    handler = an_intake(source, decide, Readiness())
    await handler.tick(asyncio.Event())
    source.batch = some_deliveries(40)
    decide.batch_size.too_slow(20)
    stop = asyncio.Event()
    stop.set()
    await handler.tick(stop)

    assert source.acknowledged == 10


async def test_after_a_failed_batch_few_dead_letters_are_taken_and_more_with_each_success(
    waits: list[float],
) -> None:
    source, decide = Source(), Decider(failures=3)
    handler = an_intake(source, decide, Readiness())
    stop, seen = asyncio.Event(), []
    for _ in range(3):
        await handler.tick(stop)
        seen.append(source.prefetch)
        with pytest.raises(ValueError, match="a bug"):
            await handler.tick(stop)
    assert seen == [1500, 1, 1], "a cycle of failures wears out one dead letter at a time"
    for _ in range(5):
        await handler.tick(stop)
        seen.append(source.prefetch)
    assert seen[3:] == [1, 10, 100, 1000, 1500]
    await handler._close("lost")
    await handler.tick(stop)
    assert source.prefetch == 1500, "what closed it was no failed batch"


async def test_dead_letters_that_were_delivered_too_often_are_recorded_undecided_and_acknowledged(
    waits: list[float],
) -> None:
    source, decide, deferrer = Source(), Decider(failures=0), Deferrer(after=5)
    handler = an_intake(source, decide, Readiness(), deferring=cast("Any", (deferrer, deferrer)))
    await handler.tick(asyncio.Event())
    source.batch = [
        Delivery(tag, 1, a_dead_letter(key=str(tag), deliveries=count))
        for tag, count in enumerate([0, 5, 4, 17], start=1)
    ]
    await handler.tick(asyncio.Event())

    assert deferrer.recorded == ["2", "4"]
    assert [letter.key for letter in decide.decided] == ["1", "3"], "the others are decided at once"
    assert source.acknowledged == 4


async def test_deferring_does_not_prove_that_deciding_works(waits: list[float]) -> None:
    source, decide, deferrer = Source(), Decider(failures=1), Deferrer(after=5)
    readiness = Readiness()
    handler = an_intake(source, decide, readiness, deferring=cast("Any", (deferrer, deferrer)))
    stop = asyncio.Event()
    await handler.tick(stop)
    with pytest.raises(ValueError, match="a bug"):
        await handler.tick(stop)
    decidable, source.batch = source.batch, [Delivery(1, 1, a_dead_letter(deliveries=5))]
    await handler.tick(stop)
    await handler.tick(stop)
    assert (source.acknowledged, source.prefetch, readiness.checks["consumer"].ok) == (1, 1, False)
    source.batch = decidable
    await handler.tick(stop)
    assert (source.acknowledged, source.prefetch, readiness.checks["consumer"].ok) == (2, 10, True)


async def test_on_a_queue_that_counts_nothing_one_that_is_too_slow_alone_is_deferred_as_well(
    waits: list[float],
) -> None:
    source, decide, deferrer = Source(), SlowDecider(fits=0), Deferrer(after=3)
    handler = an_intake(source, decide, Readiness(), deferring=cast("Any", (deferrer, deferrer)))
    stop = asyncio.Event()
    for _ in range(3):
        await handler.tick(stop)
        with pytest.raises(TooSlow):
            await handler.tick(stop)
    await handler.tick(stop)
    await handler.tick(stop)

    assert deferrer.recorded == [source.batch[0].item.key]
    assert source.acknowledged == 1
    assert handler._too_slow_alone == {}
