"""Looks come in twos: what counts as a second one."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from dlq_handler.host.worker import AvailabilityPolicy, QueueObservation, Worker
from dlq_handler.workers.worker_observation import WorkerObservation, observe_again
from tests.support.builders import NOON

EMPTY = QueueObservation(consumers=1, ready=0, unacked=0)
UNATTENDED = QueueObservation(consumers=0, ready=3)
HEARTBEAT = NOON - timedelta(hours=1)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def silent(heartbeat: datetime | None = HEARTBEAT) -> Worker:
    return Worker(id=7, heartbeat_age_seconds=3600, last_heartbeat=heartbeat)


FRESH = Worker(id=7, heartbeat_age_seconds=1, last_heartbeat=HEARTBEAT)


def looks(*seen: dict[str, Any]) -> WorkerObservation:
    """One look after the other; the last."""
    look: WorkerObservation | None = None
    for number, one in enumerate(seen):
        look = observe_again(
            7,
            look,
            worker=one.get("worker", FRESH),
            queue=one.get("queue"),
            is_queue_known="queue" in one,
            now=at(one.get("at", 60 * number)),
            watched_seconds=one.get("watched_seconds", 3600),
            availability=AvailabilityPolicy(unavailable_after_seconds=90),
            confirm_after_seconds=30,
        )
    assert look is not None
    return look


def test_silence_is_dated_from_the_first_look_that_found_it() -> None:
    assert looks({"worker": silent()}, {"worker": silent()}, {"worker": silent()}).unavailable_since == at(0)
    assert looks({"worker": None}, {"worker": None}).unavailable_since == at(0)


@pytest.mark.parametrize(
    "between",
    [
        {"worker": FRESH},
        {"worker": silent(), "watched_seconds": 10},
        {"worker": silent(HEARTBEAT + timedelta(microseconds=1))},
        {"worker": None},
    ],
)
def test_whatever_speaks_for_the_worker_between_two_looks_makes_silence_begin_anew(
    between: dict[str, Any],
) -> None:
    assert looks({"worker": silent()}, between, {"worker": silent()}).unavailable_since == at(120)


def test_worker_that_is_not_silent_has_no_silence() -> None:
    assert looks({"worker": silent()}, {"worker": FRESH}).unavailable_since is None


def test_emptiness_is_dated_from_the_earlier_one_of_the_last_two_looks() -> None:
    """Not from the oldest: it would speak for messages that were sent after it."""
    assert looks({"queue": EMPTY}).empty_since == at(0)
    assert looks({"queue": EMPTY}, {"queue": EMPTY}).empty_since == at(0)
    assert looks({"queue": EMPTY}, {"queue": EMPTY}, {"queue": EMPTY}).empty_since == at(60)


def test_looks_that_follow_too_quickly_are_not_the_second_one() -> None:
    quick = [{"queue": EMPTY, "at": seconds} for seconds in (0, 10, 20, 29)]
    assert looks(*quick).empty_since == at(0)
    assert looks(*quick, {"queue": EMPTY, "at": 30}).empty_since == at(0)
    assert looks(*quick, {"queue": EMPTY, "at": 30}, {"queue": EMPTY, "at": 31}).empty_since == at(30)


@pytest.mark.parametrize(
    "queue",
    [
        QueueObservation(consumers=1, ready=1, unacked=0),
        QueueObservation(consumers=1, ready=0, unacked=1),
        QueueObservation(consumers=1, ready=0, unacked=None),
        None,
    ],
)
def test_queue_that_is_not_known_to_be_empty_makes_emptiness_begin_anew(
    queue: QueueObservation | None,
) -> None:
    assert looks({"queue": EMPTY}, {"queue": queue}).empty_since is None
    assert looks({"queue": EMPTY}, {"queue": queue}, {"queue": EMPTY}).empty_since == at(120)


def test_queue_without_a_consumer_is_dated_as_an_empty_one_is() -> None:
    unconsumed, missing = {"queue": UNATTENDED}, {"queue": None}
    assert looks(unconsumed).unconsumed_since == at(0)
    assert looks(unconsumed, missing).unconsumed_since == at(0)
    assert looks(missing, unconsumed, unconsumed).unconsumed_since == at(60)


def test_a_consumer_between_two_looks_makes_it_begin_anew() -> None:
    unconsumed, consumer = {"queue": UNATTENDED}, {"queue": EMPTY}
    assert looks(unconsumed, consumer).unconsumed_since is None
    assert looks(unconsumed, consumer, unconsumed).unconsumed_since == at(120)


def test_looks_that_know_nothing_of_the_queue_are_no_looks_at_it_for_ten_minutes() -> None:
    """About a missing queue the broker is asked twice in ten minutes."""
    missing, unknown = {"queue": None}, dict[str, Any]()
    assert looks(missing, unknown, unknown, missing).unconsumed_since == at(0)
    assert looks(missing, missing, unknown, missing).unconsumed_since == at(60)
    late = {"at": 601}
    assert looks(missing, late).unconsumed_since is None
    assert looks(missing, late, {"at": 620, **missing}).unconsumed_since == at(620)
    assert looks({"queue": EMPTY}, unknown).empty_since is None
