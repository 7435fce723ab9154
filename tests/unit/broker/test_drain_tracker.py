"""Drained: every message that was ready at the opening is acknowledged, or a long queue has become short."""

import asyncio

import pytest

from dlq_handler.broker.consumer import DrainTracker

PREFETCH = 10


@pytest.fixture
def seconds() -> list[float]:
    return [100.0]


@pytest.fixture
def drain(seconds: list[float]) -> DrainTracker:
    return DrainTracker(lambda: seconds[0])


def test_intake_that_was_never_open_is_not_drained(drain: DrainTracker, seconds: list[float]) -> None:
    seconds[0] += 7
    assert drain.undrained_seconds == 7
    drain.note_acknowledged(5)
    drain.note_counted(ready=0, outstanding=0)
    assert drain.undrained_seconds == 7


def test_empty_queue_is_drained_at_the_opening(drain: DrainTracker) -> None:
    drain.note_opened(ready=0, prefetch=PREFETCH)
    assert drain.undrained_seconds is None


def test_short_queue_is_drained_when_each_message_is_acknowledged_not_before(drain: DrainTracker) -> None:
    drain.note_opened(ready=3, prefetch=PREFETCH)
    drain.note_counted(ready=0, outstanding=3)
    assert drain.undrained_seconds is not None, "they are taken, not acknowledged"
    drain.note_acknowledged(2)
    assert drain.undrained_seconds is not None
    drain.note_acknowledged(1)
    assert drain.undrained_seconds is None


def test_messages_that_another_consumer_took_are_not_waited_for(drain: DrainTracker) -> None:
    drain.note_opened(ready=3, prefetch=PREFETCH)
    drain.note_acknowledged(1)
    drain.note_counted(ready=0, outstanding=0)
    assert drain.undrained_seconds is None


def test_long_queue_is_drained_when_it_has_become_short(drain: DrainTracker) -> None:
    drain.note_opened(ready=100, prefetch=PREFETCH)
    drain.note_counted(ready=10, outstanding=10)
    assert drain.undrained_seconds is not None
    drain.note_counted(ready=0, outstanding=10)
    assert drain.undrained_seconds is not None, "they are taken, not acknowledged"
    drain.note_counted(ready=4, outstanding=5)
    assert drain.undrained_seconds is None


def test_time_counts_from_the_closing_and_not_from_each_opening(
    drain: DrainTracker, seconds: list[float]
) -> None:
    drain.note_opened(ready=0, prefetch=PREFETCH)
    drain.note_closed()
    for _ in range(3):
        seconds[0] += 10
        drain.note_opened(ready=5, prefetch=PREFETCH)
        drain.note_closed()
    assert drain.undrained_seconds == 30


def test_a_waiting_task_is_woken_once_when_it_is_drained(drain: DrainTracker) -> None:
    wake = asyncio.Event()
    drain.wake_when_drained(wake)
    drain.note_opened(ready=1, prefetch=PREFETCH)
    assert not wake.is_set()
    drain.note_acknowledged(1)
    assert wake.is_set()
