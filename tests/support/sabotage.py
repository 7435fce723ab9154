"""Run the sidecar, and kill it with SIGKILL at a named point. `python sabotage.py POINT [NTH] run`.

The product has no hooks for this: its functions are wrapped here, inside the child process, before it starts.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn

from dlq_handler import health
from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.broker.outgoing import Confirmed, OutgoingMessage, PublishOutcome
from dlq_handler.broker.publisher import Publisher
from dlq_handler.dead_letters import records_sql
from dlq_handler.dead_letters.intake import DeadLetterIntake
from dlq_handler.endings import outbox_sql
from dlq_handler.endings.ender import Ender
from dlq_handler.endings.relay import OutboxRelay
from dlq_handler.main import main
from dlq_handler.safety.state_reader import StateReader
from dlq_handler.timeouts import decisions_sql
from dlq_handler.timeouts.monitor import TimeoutMonitor


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL did not end the process")


def before_commit(nth: int) -> None:
    """Every statement of the batch has run, nothing is committed."""
    _never_publish()
    wrap(records_sql, "record_letters", nth, after=True)


def after_commit(nth: int) -> None:
    """Committed, with its completion events; neither acknowledged nor published."""
    _never_publish()
    wrap(Ender, "commit_first", nth, after=True)


def after_ack(nth: int) -> None:
    """Committed and acknowledged; the completion events were never sent."""
    _never_publish()
    acknowledge = QueueConsumer.acknowledge
    left = iter(range(nth - 1, -1, -1))

    async def acknowledge_and_die(self: QueueConsumer[Any], deliveries: Sequence[Any]) -> int:
        acknowledged = await acknowledge(self, deliveries)
        if next(left, None) == 0:
            die()  # `acknowledge` returns when the acknowledgement is written
        return acknowledged

    QueueConsumer.acknowledge = acknowledge_and_die  # type: ignore[method-assign]  # the sabotage


def a_bug(nth: int) -> None:
    """Deciding a batch raises an unexpected error. Kills nothing."""
    commit = Ender.commit_first
    left = iter(range(nth - 1, -1, -1))

    async def commit_or_not(self: Ender[Any, Any], letters: Sequence[Any]) -> Any:
        if next(left, None) == 0:
            raise ZeroDivisionError("a bug, on purpose")
        return await commit(self, letters)

    Ender.commit_first = commit_or_not  # type: ignore[assignment,method-assign]  # the sabotage


def a_late_relay(_nth: int) -> None:
    """Nothing is published before the end. Kills nothing."""

    async def nothing(_self: OutboxRelay) -> None:
        pass

    OutboxRelay.tick = nothing  # type: ignore[assignment,method-assign]  # the sabotage


def a_service_that_returns(_nth: int) -> None:
    """The intake ends after its first batch, as if it had been asked to. Kills nothing."""
    _end_intake(after=_return)


def a_service_that_raises(_nth: int) -> None:
    """The intake ends after its first batch, with an error. Kills nothing."""
    _end_intake(after=_raise)


def a_service_that_is_cancelled(_nth: int) -> None:
    """The task of the intake is cancelled after its first batch. Kills nothing."""
    _end_intake(after=_cancel)


def _end_intake(*, after: Callable[[], Awaitable[None]]) -> None:
    run, commit, done = DeadLetterIntake.run, Ender.commit_first, asyncio.Event()

    async def run_for_one_batch(self: DeadLetterIntake, _: asyncio.Event) -> None:
        await run(self, done)
        await after()

    async def commit_and_end(self: Ender[Any, Any], letters: Sequence[Any]) -> Any:
        committed = await commit(self, letters)
        done.set()
        return committed

    DeadLetterIntake.run = run_for_one_batch  # type: ignore[assignment,method-assign]  # the sabotage
    Ender.commit_first = commit_and_end  # type: ignore[assignment,method-assign]  # the sabotage


def a_short_patience(_nth: int) -> None:
    """A loop counts as stalled after 8 s instead of 2 minutes, whatever its interval. Kills nothing."""
    health.BEAT_SECONDS, health.LEAST_STALL_SECONDS, health.MISSED_INTERVALS = 0.1, 8.0, 0


def a_loop_that_hangs(_nth: int) -> None:
    """The second tick of the state reader never ends; stalls are noticed soon. Kills nothing."""
    a_short_patience(0)
    tick, ticks = StateReader.tick, iter(range(1))

    async def tick_once(self: StateReader) -> None:
        if next(ticks, None) is None:
            await asyncio.Event().wait()
        await tick(self)

    StateReader.tick = tick_once  # type: ignore[method-assign]  # the sabotage


async def _return() -> None:
    pass


async def _raise() -> None:
    raise ZeroDivisionError("a bug, on purpose")


async def _cancel() -> None:
    task = asyncio.current_task()
    assert task
    task.cancel()
    await asyncio.sleep(0)


def half_published(nth: int) -> None:
    """Half of a batch of completion events is confirmed, the other half was never sent, none is marked."""
    publish = Publisher.publish
    left = iter(range(nth - 1, -1, -1))

    async def publish_half(self: Publisher, messages: Sequence[OutgoingMessage]) -> Any:
        if any(_is_completion(one) for one in messages) and next(left, None) == 0:
            await publish(self, messages[: len(messages) // 2])
            die()
        return await publish(self, messages)

    Publisher.publish = publish_half  # type: ignore[method-assign]  # the sabotage


def after_confirm(nth: int) -> None:
    """A batch of completion events is confirmed by the broker and not marked in the outbox."""
    wrap(outbox_sql, "mark_confirmed", nth, after=False)


def in_a_page(nth: int) -> None:
    """A page of the monitor is written and not committed."""
    _never_publish()
    wrap(decisions_sql, "record", nth, after=True)


def between_pages(nth: int) -> None:
    """A batch of the monitor is committed, with its completion events; none was sent, and the scan is not over."""
    _never_publish()
    wrap(TimeoutMonitor, "_commit", nth, after=True)


def publishes_nothing(_nth: int) -> None:
    """Every completion event counts as published, and none is. Kills nothing."""
    publish = Publisher.publish

    async def pretend(self: Publisher, messages: Sequence[OutgoingMessage]) -> list[PublishOutcome]:
        outcomes = iter(await publish(self, [one for one in messages if not _is_completion(one)]))
        return [Confirmed() if _is_completion(one) else next(outcomes) for one in messages]

    Publisher.publish = pretend  # type: ignore[method-assign]  # the sabotage


def publishes_twice(_nth: int) -> None:
    """Every completion event is published a second time, with the same id. Kills nothing."""
    publish = Publisher.publish

    async def publish_twice(self: Publisher, messages: Sequence[OutgoingMessage]) -> list[PublishOutcome]:
        await publish(self, [one for one in messages if _is_completion(one)])
        return await publish(self, messages)

    Publisher.publish = publish_twice  # type: ignore[method-assign]  # the sabotage


def _is_completion(message: OutgoingMessage) -> bool:
    """The other messages of dlq-handler (repeated requests, canaries) arrive as ever."""
    return message.routing_key == "execution.completed"


POINTS = {
    point.__name__: point
    for point in (
        before_commit,
        after_commit,
        after_ack,
        half_published,
        after_confirm,
        a_bug,
        a_late_relay,
        in_a_page,
        between_pages,
        publishes_nothing,
        publishes_twice,
        a_service_that_returns,
        a_service_that_raises,
        a_service_that_is_cancelled,
        a_short_patience,
        a_loop_that_hangs,
    )
}


def _never_publish() -> None:
    """Or a batch before the one in question might be between its confirm and its mark just then."""

    async def never(_self: Publisher, _messages: object) -> NoReturn:
        await asyncio.Event().wait()
        die()

    Publisher.publish = never  # type: ignore[assignment,method-assign]  # the sabotage


def wrap(owner: Any, name: str, nth: int, *, after: bool) -> None:
    """Die at the `nth` call to have done its work, or instead of the `nth` call."""
    original: Callable[..., Awaitable[Any]] = getattr(owner, name)
    left = iter(range(nth - 1, -1, -1))

    async def wrapped(*arguments: Any, **keywords: Any) -> Any:
        if not after and next(left, None) == 0:
            die()
        answer = await original(*arguments, **keywords)
        # Counted by their ends: of two that run side by side the second may end first.
        if after and next(left, None) == 0:
            die()
        return answer

    setattr(owner, name, wrapped)


if __name__ == "__main__":
    _, point, nth, *arguments = sys.argv
    POINTS[point](int(nth))
    sys.argv = ["dlq-handler", *arguments]
    main()
