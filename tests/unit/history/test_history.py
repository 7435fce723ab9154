"""Time without an observation is a gap: neither quiet, nor the same as before."""

from datetime import datetime, timedelta

import pytest

from dlq_handler.history.event import WORKER_AVAILABLE, WORKER_LATE, WORKER_UNAVAILABLE
from dlq_handler.history.history import (
    Change,
    Segment,
    Span,
    change_of,
    event_of,
    gaps_between,
    timelines_of,
    with_ongoing_gap,
)
from dlq_handler.workers.availability import Availability
from tests.support.builders import NOON as SOON_AFTER_NOON

NOON = SOON_AFTER_NOON.replace(microsecond=0)
AVAILABLE, LATE, GONE, UNSURE = (
    Availability.AVAILABLE,
    Availability.LATE,
    Availability.UNAVAILABLE,
    Availability.UNKNOWN,
)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def gaps(
    seen: list[int],
    *,
    partly: dict[datetime, int] | None = None,
    first: int | None = 0,
    since: float = 0,
    until: float = 10,
    now: float = 60,
) -> list[Span]:
    return gaps_between(
        {at(minute): 15 for minute in seen} | (partly or {}),
        first=None if first is None else at(first),
        since=at(since),
        until=at(until),
        now=at(now),
    )


def test_minutes_without_an_observation_are_joined_to_gaps() -> None:
    assert gaps([0, 1, 4, 5, 6, 9]) == [Span(since=at(2), until=at(4)), Span(since=at(7), until=at(9))]


def test_two_outages_within_three_minutes_are_two_gaps() -> None:
    """O3 of the operating review: database away 22:26:40-22:27:20, broker away 22:28:22-22:28:53."""
    outages = gaps([0, 1, 5, 6, 7, 8, 9], partly={at(2): 0b0011, at(3): 0b1100, at(4): 0b0001})
    assert outages == [Span(since=at(2.5), until=at(3.5)), Span(since=at(4.25), until=at(5))]


def test_before_the_first_observation_there_is_no_gap() -> None:
    assert gaps([5, 6, 7, 8, 9], first=5) == []
    assert gaps([], first=None) == []


def test_a_quarter_that_is_not_over_says_nothing_yet() -> None:
    assert gaps([0, 1], now=2.2) == []
    assert gaps([0, 1], now=2.4) == [], "its observer may not have written it yet"
    assert gaps([0, 1], now=2.6) == [Span(since=at(2), until=at(2.25))]


def test_a_window_that_begins_within_a_minute_is_cut_there() -> None:
    assert gaps([2], since=0.5, until=1.5) == [Span(since=at(0.5), until=at(1.5))]


def a_change(minute: float, availability: Availability | None, worker_id: int = 7) -> Change:
    return Change(worker_id=worker_id, name=f"w{worker_id}", at=at(minute), availability=availability)


def a_segment(since: float, until: float, availability: Availability) -> Segment:
    return Segment(since=at(since), until=at(until), availability=availability)


def test_an_outage_that_goes_on_is_a_gap_up_to_now() -> None:
    """The record ends with the last quarter that is over and written."""
    now = at(10.5)
    just_begun = with_ongoing_gap([], since=at(10.4), known_at=now, now=now)
    assert just_begun == [Span(since=at(10.4), until=now)]
    longer = [Span(since=at(2), until=at(3)), Span(since=at(8), until=at(10.25))]
    goes_on = with_ongoing_gap(longer, since=at(8.4), known_at=now, now=now)
    assert goes_on == [longer[0], Span(since=at(8), until=now)]


def test_observations_of_another_replica_fill_our_gap() -> None:
    now = at(10.5)
    assert with_ongoing_gap([], since=at(3), known_at=now, now=now) == [Span(since=at(10.25), until=now)]


def test_of_an_old_record_the_outage_is_a_gap_from_when_it_was_seen() -> None:
    now = at(30)
    known = [Span(since=at(2), until=at(3))]
    assert with_ongoing_gap(known, since=at(11), known_at=at(10.5), now=now) == [
        *known,
        Span(since=at(11), until=now),
    ]


def test_a_timeline_goes_from_change_to_change_within_the_window() -> None:
    changes = [a_change(-5, AVAILABLE), a_change(2, GONE), a_change(6, AVAILABLE)]
    [timeline] = timelines_of(changes, gaps=[], since=at(0), until=at(10))
    assert timeline.segments == (
        a_segment(0, 2, AVAILABLE),
        a_segment(2, 6, GONE),
        a_segment(6, 10, AVAILABLE),
    )


def test_a_worker_that_is_not_registered_any_more_leaves_a_gap() -> None:
    changes = [a_change(0, AVAILABLE), a_change(3, None), a_change(7, AVAILABLE), a_change(-9, None, 8)]
    [timeline] = timelines_of(changes, gaps=[], since=at(0), until=at(10))
    assert timeline.segments == (a_segment(0, 3, AVAILABLE), a_segment(7, 10, AVAILABLE))


def test_a_gap_is_unknown_and_equal_neighbors_are_one_segment() -> None:
    changes = [a_change(0, AVAILABLE), a_change(4, GONE)]
    spans = [Span(since=at(2), until=at(4)), Span(since=at(4), until=at(5))]
    [timeline] = timelines_of(changes, gaps=spans, since=at(0), until=at(8))
    assert timeline.segments == (
        a_segment(0, 2, AVAILABLE),
        a_segment(2, 5, UNSURE),
        a_segment(5, 8, GONE),
    )


@pytest.mark.parametrize(
    ("before", "seen", "recorded", "event"),
    [
        (None, AVAILABLE, AVAILABLE, None),
        (None, GONE, GONE, None),
        (AVAILABLE, AVAILABLE, None, None),
        (AVAILABLE, LATE, LATE, WORKER_LATE),
        (LATE, AVAILABLE, AVAILABLE, None),
        (LATE, GONE, GONE, WORKER_UNAVAILABLE),
        (AVAILABLE, UNSURE, UNSURE, None),
        (UNSURE, GONE, GONE, WORKER_UNAVAILABLE),
        (UNSURE, AVAILABLE, AVAILABLE, None),
        (GONE, UNSURE, None, None),
        (GONE, AVAILABLE, AVAILABLE, WORKER_AVAILABLE),
        (GONE, LATE, LATE, WORKER_AVAILABLE),
    ],
)
def test_a_look_adds_what_is_new(
    before: Availability | None, seen: Availability, recorded: Availability | None, event: str | None
) -> None:
    assert change_of(before, seen) is recorded
    assert (event_of(before, recorded) if recorded else None) == event
