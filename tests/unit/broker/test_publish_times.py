"""What was not watched is not vouched for."""

from dataclasses import dataclass

import pytest

from dlq_handler.broker.publish_times import PublishRecorder, PublishView


@dataclass
class Clock:
    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def record(clock: Clock) -> PublishRecorder:
    return PublishRecorder(clock)


def publish(record: PublishRecorder, clock: Clock, *, takes: float = 0.1, confirmed: bool = True) -> None:
    with record.publishing() as one:
        clock.seconds += takes
        one.is_confirmed = confirmed


def publish_for(record: PublishRecorder, clock: Clock, seconds: float) -> None:
    until = clock.seconds + seconds
    while clock.seconds < until:
        publish(record, clock)
        clock.seconds += 14.9


def test_process_that_has_just_started_vouches_for_nothing(record: PublishRecorder, clock: Clock) -> None:
    assert record.view() == PublishView()
    assert not record.view().cover(1)
    publish(record, clock)
    assert not record.view().cover(1), "it has watched for a tenth of a second"


def test_quick_publishes_cover_the_time_since_the_first_of_them(
    record: PublishRecorder, clock: Clock
) -> None:
    publish_for(record, clock, 330)
    assert record.view().cover(330)
    assert not record.view().cover(360)
    assert not record.view().were_slow_within(1e9)


def test_a_minute_without_a_confirm_ends_it(record: PublishRecorder, clock: Clock) -> None:
    publish_for(record, clock, 330)
    publish(record, clock)
    clock.seconds += 60
    assert record.view().cover(330)
    clock.seconds += 1
    assert not record.view().cover(330)
    publish(record, clock)
    assert not record.view().cover(330), "the minute was not watched"
    assert record.view().quick_seconds == pytest.approx(0.1)


def test_last_confirm_is_not_older_than_a_deadline_of_seconds(record: PublishRecorder, clock: Clock) -> None:
    publish_for(record, clock, 330)
    publish(record, clock)
    clock.seconds += 10
    assert record.view().cover(10)
    assert not record.view().cover(9)


def test_slow_publish_begins_it_again_when_it_is_over(record: PublishRecorder, clock: Clock) -> None:
    publish_for(record, clock, 330)
    publish(record, clock, takes=5.1)
    assert not record.view().cover(1)
    assert record.view().were_slow_within(1)
    publish_for(record, clock, 330)
    assert record.view().cover(330)
    assert not record.view().were_slow_within(330)


def test_publish_that_hangs_right_now_is_slow(record: PublishRecorder, clock: Clock) -> None:
    publish_for(record, clock, 330)
    with record.publishing() as one:
        clock.seconds += 5
        assert record.view().cover(330)
        clock.seconds += 0.1
        assert not record.view().cover(1)
        assert record.view().slow_seconds_ago == 0
        publish(record, clock)
        assert not record.view().cover(1), "another publisher's confirm does not speak for the one that hangs"
        one.is_confirmed = True
    assert not record.view().cover(1)


def test_publish_that_fails_at_once_says_nothing(record: PublishRecorder, clock: Clock) -> None:
    publish_for(record, clock, 330)
    with pytest.raises(OSError, match="a right is missing"), record.publishing():
        raise OSError("a right is missing")
    assert record.view().cover(330)
    assert not record.view().were_slow_within(1)


def test_publish_on_a_blocked_connection_is_slow_however_soon_it_fails(
    record: PublishRecorder, clock: Clock
) -> None:
    publish_for(record, clock, 330)
    with record.publishing() as one:
        one.is_blocked = True
    assert not record.view().cover(1)
    assert record.view().were_slow_within(1)


def test_publish_that_the_broker_refused_at_once_says_nothing(record: PublishRecorder, clock: Clock) -> None:
    publish_for(record, clock, 330)
    publish(record, clock, confirmed=False)
    assert record.view().cover(330)
    clock.seconds += 55
    assert not record.view().cover(330)
