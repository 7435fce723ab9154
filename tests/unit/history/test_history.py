"""Time in which nobody looked is told as such: neither as quiet, nor as before."""

from datetime import datetime, timedelta

import pytest

from dlq_handler.history.event import WORKER_BACK, WORKER_GONE, WORKER_LATE
from dlq_handler.history.history import (
    Change,
    Segment,
    Span,
    change_of,
    event_of,
    lanes_of,
    still_unseen,
    unseen,
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


def blind(
    seen: list[int], *, first: int | None = 0, since: float = 0, until: float = 10, now: float = 60
) -> list[Span]:
    return unseen(
        [at(minute) for minute in seen],
        first=None if first is None else at(first),
        since=at(since),
        until=at(until),
        now=at(now),
    )


def test_minutes_without_a_look_are_joined_to_spans() -> None:
    assert blind([0, 1, 4, 5, 6, 9]) == [Span(since=at(2), until=at(4)), Span(since=at(7), until=at(9))]


def test_before_anybody_ever_looked_there_was_no_blind_time() -> None:
    assert blind([5, 6, 7, 8, 9], first=5) == []
    assert blind([], first=None) == []


def test_minute_that_is_not_over_says_nothing_yet() -> None:
    assert blind([0, 1], now=2.9) == []
    assert blind([0, 1], now=3.2) == [], "who saw it may not have written it yet"
    assert blind([0, 1], now=3.3) == [Span(since=at(2), until=at(3))]


def test_a_window_that_begins_within_a_minute_is_cut_there() -> None:
    assert blind([2], since=0.5, until=1.5) == [Span(since=at(0.5), until=at(1.5))]


def a_change(minute: float, availability: Availability | None, worker_id: int = 7) -> Change:
    return Change(worker_id=worker_id, name=f"w{worker_id}", at=at(minute), availability=availability)


def a_segment(since: float, until: float, availability: Availability) -> Segment:
    return Segment(since=at(since), until=at(until), availability=availability)


def test_an_outage_that_goes_on_is_blind_up_to_now() -> None:
    """What the record tells of ends with the last minute that is over; here with 9."""
    now = at(10.5)
    just_begun = still_unseen([], since=at(10.2), known_at=now, now=now)
    assert just_begun == [Span(since=at(10.2), until=now)]
    longer = [Span(since=at(2), until=at(3)), Span(since=at(8), until=at(10))]
    goes_on = still_unseen(longer, since=at(8.4), known_at=now, now=now)
    assert goes_on == [longer[0], Span(since=at(8), until=now)]


def test_what_somebody_else_saw_during_our_outage_is_not_blind() -> None:
    now = at(10.5)
    assert still_unseen([], since=at(3), known_at=now, now=now) == [Span(since=at(10), until=now)]


def test_of_an_old_record_the_outage_is_blind_from_when_it_was_seen() -> None:
    now = at(30)
    known = [Span(since=at(2), until=at(3))]
    assert still_unseen(known, since=at(11), known_at=at(10.5), now=now) == [
        *known,
        Span(since=at(11), until=now),
    ]


def test_a_lane_goes_from_change_to_change_within_the_window() -> None:
    changes = [a_change(-5, AVAILABLE), a_change(2, GONE), a_change(6, AVAILABLE)]
    [lane] = lanes_of(changes, blind=[], since=at(0), until=at(10))
    assert lane.segments == (
        a_segment(0, 2, AVAILABLE),
        a_segment(2, 6, GONE),
        a_segment(6, 10, AVAILABLE),
    )


def test_a_worker_that_is_not_registered_any_more_leaves_a_gap() -> None:
    changes = [a_change(0, AVAILABLE), a_change(3, None), a_change(7, AVAILABLE), a_change(-9, None, 8)]
    [lane] = lanes_of(changes, blind=[], since=at(0), until=at(10))
    assert lane.segments == (a_segment(0, 3, AVAILABLE), a_segment(7, 10, AVAILABLE))


def test_over_blind_time_nobody_can_tell_and_pieces_of_one_kind_are_one() -> None:
    changes = [a_change(0, AVAILABLE), a_change(4, GONE)]
    spans = [Span(since=at(2), until=at(4)), Span(since=at(4), until=at(5))]
    [lane] = lanes_of(changes, blind=spans, since=at(0), until=at(8))
    assert lane.segments == (
        a_segment(0, 2, AVAILABLE),
        a_segment(2, 5, UNSURE),
        a_segment(5, 8, GONE),
    )


@pytest.mark.parametrize(
    ("before", "seen", "recorded", "told"),
    [
        (None, AVAILABLE, AVAILABLE, None),
        (None, GONE, GONE, None),
        (AVAILABLE, AVAILABLE, None, None),
        (AVAILABLE, LATE, LATE, WORKER_LATE),
        (LATE, AVAILABLE, AVAILABLE, None),
        (LATE, GONE, GONE, WORKER_GONE),
        (AVAILABLE, UNSURE, UNSURE, None),
        (UNSURE, GONE, GONE, WORKER_GONE),
        (UNSURE, AVAILABLE, AVAILABLE, None),
        (GONE, UNSURE, None, None),
        (GONE, AVAILABLE, AVAILABLE, WORKER_BACK),
        (GONE, LATE, LATE, WORKER_BACK),
    ],
)
def test_a_look_adds_what_is_new(
    before: Availability | None, seen: Availability, recorded: Availability | None, told: str | None
) -> None:
    assert change_of(before, seen) is recorded
    assert (event_of(before, recorded) if recorded else None) == told
