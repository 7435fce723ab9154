"""Drained: every message that was ready at the opening is acknowledged, or a long queue has become short."""

import asyncio

import pytest

from dlq_handler.broker.intake_drain import IntakeDrain

PREFETCH = 10


@pytest.fixture
def seconds() -> list[float]:
    return [100.0]


@pytest.fixture
def drain(seconds: list[float]) -> IntakeDrain:
    return IntakeDrain(lambda: seconds[0])


def test_intake_that_was_never_open_is_not_drained(drain: IntakeDrain, seconds: list[float]) -> None:
    seconds[0] += 7
    assert drain.undrained_seconds == 7
    drain.acknowledged(5)
    drain.counted(ready=0, outstanding=0)
    assert drain.undrained_seconds == 7


def test_empty_queue_is_drained_at_the_opening(drain: IntakeDrain) -> None:
    drain.opened(ready=0, prefetch=PREFETCH)
    assert drain.undrained_seconds is None


def test_short_queue_is_drained_when_each_message_is_acknowledged_not_before(drain: IntakeDrain) -> None:
    drain.opened(ready=3, prefetch=PREFETCH)
    drain.counted(ready=0, outstanding=3)
    assert drain.undrained_seconds is not None, "they are taken, not acknowledged"
    drain.acknowledged(2)
    assert drain.undrained_seconds is not None
    drain.acknowledged(1)
    assert drain.undrained_seconds is None


def test_messages_that_another_consumer_took_are_not_waited_for(drain: IntakeDrain) -> None:
    drain.opened(ready=3, prefetch=PREFETCH)
    drain.acknowledged(1)
    drain.counted(ready=0, outstanding=0)
    assert drain.undrained_seconds is None


def test_long_queue_is_drained_when_it_has_become_short(drain: IntakeDrain) -> None:
    drain.opened(ready=100, prefetch=PREFETCH)
    drain.counted(ready=10, outstanding=10)
    assert drain.undrained_seconds is not None
    drain.counted(ready=0, outstanding=10)
    assert drain.undrained_seconds is not None, "they are taken, not acknowledged"
    drain.counted(ready=4, outstanding=5)
    assert drain.undrained_seconds is None


def test_time_counts_from_the_closing_and_not_from_each_opening(
    drain: IntakeDrain, seconds: list[float]
) -> None:
    drain.opened(ready=0, prefetch=PREFETCH)
    drain.closed()
    for _ in range(3):
        seconds[0] += 10
        drain.opened(ready=5, prefetch=PREFETCH)
        drain.closed()
    assert drain.undrained_seconds == 30


def test_whoever_waits_is_woken_once_it_is_drained(drain: IntakeDrain) -> None:
    wake = asyncio.Event()
    drain.wake_when_drained(wake)
    drain.opened(ready=1, prefetch=PREFETCH)
    assert not wake.is_set()
    drain.acknowledged(1)
    assert wake.is_set()
