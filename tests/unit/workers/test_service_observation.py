"""Looks at queues without consumers: what one more look adds, and what proves a restart of the broker."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.workers.service_observation import (
    LONGEST_BREAK,
    START_KNOWN_WITHIN,
    UPTIME_ERROR,
    BrokerRun,
    Reporting,
    ServiceObservation,
    ServiceObservations,
    has_reported_twice,
    observe_again,
    same_start,
)

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
QUEUE = "worker.7.executions"
CONSUMED = ServiceObservation(queue=QUEUE)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def reporting(seconds: float, *, is_inactive: bool = False) -> Reporting:
    return Reporting(last_heartbeat=at(seconds), is_inactive=is_inactive)


def looked(before: ServiceObservation | None, **changed: Any) -> ServiceObservation:
    """One more look, five seconds after the one before it, that finds no consumer."""
    facts: dict[str, Any] = {
        "consumers": 0,
        "reporting": None,
        "broker": BrokerRun(),
        "last_checked_at": at(-5),
        "now": NOW,
    }
    return observe_again(before, queue=QUEUE, **(facts | changed))


def test_a_queue_that_has_a_consumer_has_no_times() -> None:
    before = ServiceObservation(
        queue=QUEUE, unconsumed_since=at(-60), first_heartbeat=at(-50), connection_lost_at=at(-70)
    )

    assert looked(before, consumers=1, reporting=reporting(-1)) == CONSUMED
    assert not CONSUMED.is_eventful


def test_the_first_look_without_a_consumer_dates_it_and_remembers_the_last_one_with() -> None:
    look = looked(CONSUMED, reporting=reporting(-1))

    assert (look.unconsumed_since, look.consumed_at) == (NOW, at(-5))
    assert look.first_heartbeat is None, "the worker may have consumed when it sent this one"
    assert looked(None).consumed_at is None, "no look ever found a consumer"


def test_later_looks_keep_the_first_times() -> None:
    first = looked(CONSUMED, reporting=reporting(-1))
    second = looked(first, reporting=reporting(29), now=at(30), last_checked_at=at(25))
    third = looked(second, reporting=reporting(59), now=at(60), last_checked_at=at(55))

    assert second == replace(first, first_heartbeat=at(29))
    assert third == second
    assert not has_reported_twice(third.first_heartbeat, at(29))
    assert has_reported_twice(third.first_heartbeat, at(59))


def test_a_worker_that_crashes_and_starts_within_seconds_is_not_named_while_it_prepares() -> None:
    """It sends one heartbeat when it registers, then prepares its environments, and only then consumes."""
    crashed = looked(CONSUMED, reporting=reporting(-3))
    look = looked(crashed, reporting=reporting(4), now=at(5), last_checked_at=NOW)
    for seconds in range(10, 85, 5):
        look = looked(look, reporting=reporting(4), now=at(seconds), last_checked_at=at(seconds - 5))
        assert not has_reported_twice(look.first_heartbeat, at(4)), f"{seconds} s after the crash"

    assert look.first_heartbeat == at(4)
    consumes = looked(look, consumers=1, reporting=reporting(84), now=at(85), last_checked_at=at(80))
    assert consumes == CONSUMED


def test_a_worker_that_registers_before_the_first_look_is_not_named_while_it_prepares() -> None:
    look = looked(CONSUMED, reporting=reporting(-1))
    look = looked(look, reporting=reporting(29), now=at(30), last_checked_at=at(25))

    assert not has_reported_twice(look.first_heartbeat, at(29))


def test_a_worker_that_does_not_report_begins_again() -> None:
    """One that starts sends its first heartbeat before it consumes: the heartbeat of its last life does not count."""
    first = looked(CONSUMED, reporting=reporting(-1))
    silent = looked(first, now=at(60), last_checked_at=at(55))
    starts = looked(silent, reporting=reporting(64), now=at(65), last_checked_at=at(60))

    assert silent.first_heartbeat is None
    assert starts.first_heartbeat == at(64)
    assert starts.unconsumed_since == NOW


def test_a_worker_that_was_stopped_in_good_order_begins_again() -> None:
    stops = looked(CONSUMED, reporting=reporting(-1, is_inactive=True))
    starts = looked(stops, reporting=reporting(9), now=at(10), last_checked_at=at(5))

    assert (stops.first_heartbeat, stops.inactive_heartbeat) == (None, at(-1))
    assert (starts.first_heartbeat, starts.inactive_heartbeat) == (at(9), None)


def test_an_inactive_worker_counts_from_its_first_heartbeat_whether_or_not_it_consumes() -> None:
    first = looked(CONSUMED, consumers=1, reporting=reporting(-1, is_inactive=True))
    second = looked(
        first, consumers=1, reporting=reporting(29, is_inactive=True), now=at(30), last_checked_at=at(25)
    )

    assert first.inactive_heartbeat == second.inactive_heartbeat == at(-1)
    assert first.is_eventful


def test_a_start_of_the_broker_between_the_two_looks_is_a_restart() -> None:
    look = looked(CONSUMED, broker=BrokerRun(started_at=at(-3), connection_lost_at=at(-4)))

    assert (look.restarted_at, look.connection_lost_at) == (at(-3), at(-4))


def test_the_management_api_may_report_the_start_later() -> None:
    first = looked(CONSUMED)
    assert first.may_learn_start(NOW)
    second = looked(
        first, broker=BrokerRun(started_at=at(4)), now=at(10), last_checked_at=at(5), reporting=reporting(8)
    )

    assert second.restarted_at == at(4), "its uptime is seconds old, so the start seems seconds later"
    assert not second.may_learn_start(at(10))
    assert not first.may_learn_start(NOW + START_KNOWN_WITHIN + timedelta(seconds=1))


def test_nothing_else_is_called_a_restart() -> None:
    for broker in (
        BrokerRun(),
        BrokerRun(started_at=at(-3600)),
        BrokerRun(started_at=at(-5)),
        BrokerRun(started_at=NOW + UPTIME_ERROR + timedelta(seconds=1)),
        BrokerRun(connection_lost_at=at(-60)),
    ):
        look = looked(CONSUMED, broker=broker)
        assert (look.restarted_at, look.connection_lost_at) == (None, None), broker
    never_consumed = looked(None, broker=BrokerRun(started_at=at(-3), connection_lost_at=at(-3)))
    assert (never_consumed.restarted_at, never_consumed.connection_lost_at) == (None, None)


def test_one_start_stays_one_time() -> None:
    known = ServiceObservation(queue="other", unconsumed_since=NOW, consumed_at=at(-9), restarted_at=at(-4))

    assert same_start(at(-1), [CONSUMED, known]) == at(-4)
    assert same_start(at(60), [CONSUMED, known]) == at(60)


def test_after_a_long_break_the_looks_begin_again() -> None:
    """A consumer may have come and gone meanwhile. One that was there before the break was there."""
    before = looked(CONSUMED, reporting=reporting(-1), broker=BrokerRun(started_at=at(-3)))
    later = NOW + LONGEST_BREAK + timedelta(seconds=1)
    again = looked(before, reporting=reporting(300), now=later, last_checked_at=NOW)
    restarted = looked(CONSUMED, broker=BrokerRun(started_at=at(60)), now=later, last_checked_at=NOW)

    assert (again.unconsumed_since, again.consumed_at, again.restarted_at) == (later, None, None)
    assert again.first_heartbeat is None
    assert (restarted.consumed_at, restarted.restarted_at) == (NOW, at(60))


def test_looks_are_current_for_three_minutes() -> None:
    looks = ServiceObservations(observed_at=NOW, by_queue={})

    assert looks.are_current(at(180))
    assert not looks.are_current(at(181))
    assert not ServiceObservations(observed_at=None, by_queue={}).are_current(NOW)


STEPS = st.lists(
    st.tuples(
        st.integers(min_value=1, max_value=400),
        st.integers(min_value=0, max_value=1),
        st.none() | st.integers(min_value=-500, max_value=20),
        st.none() | st.integers(min_value=-60, max_value=0),
        st.booleans(),
    ),
    max_size=12,
)


@given(STEPS)
def test_a_restart_is_never_claimed_over_a_look_with_a_consumer_after_it(
    steps: list[tuple[int, int, int | None, int | None, bool]],
) -> None:
    look: ServiceObservation | None = None
    clock, last_checked_at, consumed_at = 0.0, None, None
    for wait, consumers, started, heartbeat, is_inactive in steps:
        clock += wait
        look = looked(
            look,
            consumers=consumers,
            broker=BrokerRun(started_at=None if started is None else at(clock + started)),
            reporting=None if heartbeat is None else reporting(clock + heartbeat, is_inactive=is_inactive),
            now=at(clock),
            last_checked_at=last_checked_at,
        )
        last_checked_at = at(clock)
        if consumers:
            consumed_at = at(clock)
            assert look.unconsumed_since is None
        if look.restarted_at is not None:
            assert consumed_at is not None
            assert consumed_at < look.restarted_at
        if look.unconsumed_since is not None and consumed_at is not None:
            assert look.unconsumed_since > consumed_at
