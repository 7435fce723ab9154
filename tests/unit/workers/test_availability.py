"""Available, late, unavailable or unknown: by the age of the heartbeat and of the own observation."""

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dlq_handler.host.worker import AvailabilityPolicy, RegisteredWorker, Worker
from dlq_handler.workers.availability import Availability, absences, standing_of
from tests.support.builders import NOON, a_worker

POLICY = AvailabilityPolicy(unavailable_after_seconds=90, late_after_seconds=30)
# Heartbeats every 30 s, and every second as in the sandbox.
STOCK = AvailabilityPolicy(unavailable_after_seconds=90, late_after_seconds=90)
QUICK = AvailabilityPolicy(unavailable_after_seconds=5, late_after_seconds=3)


@pytest.mark.parametrize(
    ("age", "watched", "expected"),
    [
        (0.0, math.inf, Availability.AVAILABLE),
        (-5.0, math.inf, Availability.AVAILABLE),
        (30.0, math.inf, Availability.AVAILABLE),
        (30.1, math.inf, Availability.LATE),
        (90.0, math.inf, Availability.LATE),
        (90.1, math.inf, Availability.UNAVAILABLE),
        (90.1, 90.0, Availability.UNAVAILABLE),
        (90.1, 89.9, Availability.UNKNOWN),
        (9e9, 0.0, Availability.UNKNOWN),
        # What is young enough to be seen as such needs no watching.
        (2.0, 0.0, Availability.AVAILABLE),
        (60.0, 0.0, Availability.LATE),
        (None, math.inf, Availability.UNKNOWN),
    ],
)
def test_availability_follows_the_age_of_the_heartbeat(
    age: float | None, watched: float, expected: Availability
) -> None:
    standing = standing_of(a_worker(heartbeat_age_seconds=age), watched_seconds=watched, policy=POLICY)

    assert standing.availability is expected


@pytest.mark.parametrize(
    ("policy", "marked_after_seconds", "is_goodbye"),
    [
        (STOCK, 0.0, True),
        (STOCK, 31.0, True),
        (STOCK, 59.0, False),
        (STOCK, 90.0, False),
        (QUICK, 1.1, True),
        # As early as a monitor with these times marks a worker that was killed.
        (QUICK, 3.0, False),
        (QUICK, 7.0, False),
    ],
)
def test_who_is_marked_before_its_next_heartbeat_is_due_said_goodbye(
    policy: AvailabilityPolicy, marked_after_seconds: float, is_goodbye: bool
) -> None:
    row: dict[str, Any] = {"role": "action", "is_cordoned": False, "cordon_reason": None}
    worker = RegisteredWorker(
        worker=Worker(id=7, heartbeat_age_seconds=600.0, last_heartbeat=NOON),
        name="worker-python",
        status="inactive",
        scheduled=0,
        running=0,
        updated=NOON + timedelta(seconds=marked_after_seconds),
        **row,
    )

    assert worker.was_stopped(policy) is is_goodbye
    assert not replace(worker, status="active").was_stopped(policy)


def test_unknown_has_its_reason() -> None:
    never = standing_of(a_worker(heartbeat_age_seconds=None), watched_seconds=math.inf, policy=POLICY)
    young = standing_of(a_worker(heartbeat_age_seconds=500), watched_seconds=12, policy=POLICY)

    assert "never sent a heartbeat" in never.explanation
    assert "watched for 12 s only" in young.explanation


def test_limit_below_three_heartbeats_still_decides() -> None:
    """An operator may set unavailable below late: the decision's word goes first."""
    policy = AvailabilityPolicy(unavailable_after_seconds=20, late_after_seconds=30)

    standing = standing_of(a_worker(heartbeat_age_seconds=25), watched_seconds=math.inf, policy=policy)

    assert standing.availability is Availability.UNAVAILABLE


def test_absence_is_confirmed_by_two_looks_and_not_by_the_time_since_one() -> None:
    worker = replace(a_worker(heartbeat_age_seconds=500), last_heartbeat=NOON)

    first = absences({}, [worker], 100.0)
    second = absences(first, [worker], 129.9)
    third = absences(second, [worker], 130.0)

    assert not first[7].is_confirmed(after_seconds=30)
    assert not second[7].is_confirmed(after_seconds=30)
    assert third[7].is_confirmed(after_seconds=30)


def test_heartbeat_between_two_looks_makes_them_begin_anew() -> None:
    worker = replace(a_worker(heartbeat_age_seconds=500), last_heartbeat=NOON)
    moved = replace(worker, last_heartbeat=NOON + timedelta(seconds=1))

    seen = absences(absences({}, [worker], 0.0), [moved], 30.0)

    assert not seen[7].is_confirmed(after_seconds=30)


def test_worker_that_is_not_unavailable_any_more_is_forgotten() -> None:
    worker = replace(a_worker(heartbeat_age_seconds=500), last_heartbeat=NOON)

    assert absences(absences({}, [worker], 0.0), [], 30.0) == {}
