"""Requested or scheduling for too long: row by row, and what no row may ever lead to."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.host.execution import ExecutionStatus, Unscheduled
from dlq_handler.timeouts.decide_unscheduled import (
    REPUBLISHING_IS_OFF,
    UNSCHEDULED,
    UnscheduledDecision,
    decide_unscheduled,
)
from dlq_handler.timeouts.decision import End, NotStale, RepublishRequest, Wait
from dlq_handler.timeouts.options import MonitorOptions
from tests.support.builders import NOON, an_execution

TIMEOUT = 900.0
QUIET = 60.0
LATER = NOON + timedelta(hours=1)


def a_row(*, status: ExecutionStatus = ExecutionStatus.REQUESTED, **changes: Any) -> Unscheduled:
    """Requested at noon, and nothing that excuses it."""
    fields: dict[str, Any] = {
        "execution": an_execution(status=status, worker_id=None, updated=changes.pop("updated", NOON)),
        "waits_for_slot": False,
        "next_retry_at": None,
        "is_workflow_parent": False,
        "republished_at": None,
        "now": LATER,
    }
    return Unscheduled(**(fields | changes))


def decided(
    row: Unscheduled,
    *,
    now: datetime = LATER,
    quiet_seconds: float | None = QUIET,
    may_fail: bool = False,
    limit: int = 20,
    republishes: bool = True,
    steady_since: datetime | None = None,
) -> UnscheduledDecision:
    options = MonitorOptions(
        unscheduled_timeout_seconds=TIMEOUT,
        quiet_seconds=QUIET,
        fail_unscheduled=may_fail,
        republish_limit=limit,
        republish_requests=republishes,
    )
    row = replace(row, now=now)
    return decide_unscheduled(row, quiet_seconds=quiet_seconds, options=options, steady_since=steady_since)


@pytest.mark.parametrize("may_fail", [True, False])
def test_execution_with_an_unconfirmed_request_waits(may_fail: bool) -> None:
    row = a_row(has_unconfirmed=True, republished_at=NOON, requests=1)
    decision = decided(row, now=LATER + timedelta(days=1), may_fail=may_fail)
    assert isinstance(decision, Wait)
    assert "not confirmed" in decision.explanation


@pytest.mark.parametrize("status", sorted(UNSCHEDULED))
def test_request_that_nothing_excuses_is_announced_again(status: ExecutionStatus) -> None:
    assert isinstance(decided(a_row(status=status)), RepublishRequest)


@pytest.mark.parametrize(
    ("row", "explanation", "until"),
    [
        (a_row(waits_for_slot=True), "waits for a slot", None),
        (
            a_row(next_retry_at="2026-11-16T14:00:00Z"),
            "time of its retry",
            datetime(2026, 11, 16, 14, tzinfo=UTC),
        ),
        (
            a_row(next_retry_at="2026-11-16T12:55:00.123456789Z"),
            "may still be with the scheduler",
            datetime(2026, 11, 16, 13, 10, 0, 123456, tzinfo=UTC),
        ),
        (a_row(next_retry_at="tomorrow"), "cannot be read", None),
        (a_row(next_retry_at="2026-11-16T01:00:00"), "cannot be read", None),
        (
            a_row(updated=LATER - timedelta(seconds=899)),
            "may still be with the scheduler",
            LATER + timedelta(seconds=1),
        ),
        (a_row(updated=LATER + timedelta(hours=1)), "may still be with the scheduler", None),
        (
            a_row(republished_at=LATER - timedelta(seconds=TIMEOUT), requests=2),
            "requested again 2 of at most 20 times",
            LATER + timedelta(seconds=TIMEOUT),
        ),
        (
            a_row(republished_at=NOON - timedelta(days=9), requests=20),
            "requested again 20 times and never scheduled",
            None,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_lawful_wait_is_left_alone_and_says_until_when(
    row: Unscheduled, explanation: str, until: datetime | None
) -> None:
    decision = decided(row)
    assert isinstance(decision, Wait)
    assert explanation in decision.explanation
    assert decision.until == until


@pytest.mark.parametrize("age_seconds", [TIMEOUT - 1, 10 * TIMEOUT], ids=["young", "overdue"])
def test_with_republishing_off_nothing_is_requested_again_and_the_setting_is_named(
    age_seconds: float,
) -> None:
    row = a_row(updated=LATER - timedelta(seconds=age_seconds))
    decision = decided(row, republishes=False)
    assert isinstance(decision, Wait)
    assert REPUBLISHING_IS_OFF in decision.explanation
    assert decision.until is None
    in_line = decided(a_row(waits_for_slot=True), republishes=False)
    assert isinstance(in_line, Wait)
    assert "waits for a slot" in in_line.explanation


def test_parent_of_a_workflow_and_what_was_scheduled_are_none_of_its_business() -> None:
    assert isinstance(decided(a_row(is_workflow_parent=True)), NotStale)
    for status in set(ExecutionStatus) - UNSCHEDULED:
        assert isinstance(decided(a_row(status=status)), NotStale)


@pytest.mark.parametrize("quiet_seconds", [None, 0.0, QUIET - 0.1])
def test_request_may_be_in_a_queue_that_was_not_quiet_for_long_enough(quiet_seconds: float | None) -> None:
    assert isinstance(decided(a_row(), quiet_seconds=quiet_seconds), Wait)


def test_row_that_moved_after_it_was_announced_again_is_announced_once_more() -> None:
    """No worker was at hand: the scheduler took it up, put it back, and forgot it."""
    row = a_row(updated=NOON + timedelta(minutes=20), republished_at=NOON + timedelta(minutes=16))
    assert isinstance(decided(row), RepublishRequest)


@pytest.mark.parametrize(
    "moved", [timedelta(seconds=-1), timedelta(seconds=1)], ids=["not touched since", "taken up, put back"]
)
def test_only_where_wanted_it_is_given_up_after_another_timeout(moved: timedelta) -> None:
    announced = NOON + timedelta(minutes=16)
    row = a_row(updated=announced + moved, republished_at=announced, requests=1)
    due = announced + timedelta(seconds=TIMEOUT)
    assert isinstance(decided(row, may_fail=True, now=due + timedelta(seconds=1)), End)
    early = decided(row, may_fail=True, now=due - timedelta(seconds=1))
    assert isinstance(early, Wait)
    assert not isinstance(decided(row, may_fail=False, now=due + timedelta(seconds=1)), End)


def test_announcement_for_an_older_attempt_does_not_end_a_later_one() -> None:
    """It was scheduled meanwhile and came back: that is another wait, with an announcement of its own."""
    row = a_row(updated=NOON + timedelta(minutes=30), republished_at=NOON)
    assert isinstance(decided(row, may_fail=True), RepublishRequest)


@pytest.mark.parametrize("announced", [None, NOON])
def test_when_the_clock_has_jumped_ahead_waiting_counts_from_there(announced: datetime | None) -> None:
    row = a_row(republished_at=announced)
    jumped = LATER - timedelta(seconds=TIMEOUT)
    early = decided(row, may_fail=True, steady_since=jumped + timedelta(seconds=1))
    assert isinstance(early, Wait)
    assert early.until == LATER + timedelta(seconds=1)
    assert not isinstance(decided(row, may_fail=True, steady_since=jumped), Wait)


times = st.datetimes(timezones=st.just(UTC))
rows = st.builds(
    Unscheduled,
    execution=st.builds(
        lambda status, updated: an_execution(status=status, updated=updated),
        st.sampled_from(ExecutionStatus),
        times,
    ),
    waits_for_slot=st.booleans(),
    next_retry_at=st.none() | st.text() | times.map(datetime.isoformat),
    is_workflow_parent=st.booleans(),
    republished_at=st.none() | times,
    requests=st.integers(min_value=0, max_value=30),
    now=times,
)


@given(
    row=rows,
    quiet_seconds=st.none() | st.floats(min_value=0, max_value=1e6),
    options=st.builds(
        MonitorOptions,
        unscheduled_timeout_seconds=st.floats(min_value=1, max_value=30 * 86_400),
        quiet_seconds=st.floats(min_value=1, max_value=86_400),
        fail_unscheduled=st.booleans(),
        republish_limit=st.integers(min_value=0, max_value=30),
    ),
)
def test_no_row_is_acted_upon_that_may_wait(
    row: Unscheduled, quiet_seconds: float | None, options: MonitorOptions
) -> None:
    decision = decide_unscheduled(row, quiet_seconds=quiet_seconds, options=options)
    timeout = timedelta(seconds=options.unscheduled_timeout_seconds)
    if isinstance(decision, Wait | NotStale):
        return
    assert row.execution.status in UNSCHEDULED
    assert not row.waits_for_slot
    assert not row.is_workflow_parent
    assert quiet_seconds is not None
    assert quiet_seconds >= options.quiet_seconds
    assert row.now - row.execution.updated >= timeout
    if isinstance(decision, RepublishRequest):
        assert row.requests < options.republish_limit
    if isinstance(decision, End):
        assert options.fail_unscheduled
        assert row.republished_at is not None
        assert row.now - row.republished_at >= timeout


@pytest.mark.parametrize(
    ("requests", "timeouts"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 16), (19, 16)]
)
def test_pauses_between_requests_grow_up_to_sixteen_timeouts(requests: int, timeouts: int) -> None:
    """Whatever the scheduler made of the row meanwhile."""
    due = NOON + timedelta(seconds=timeouts * TIMEOUT)
    row = a_row(updated=NOON - timedelta(days=1), republished_at=NOON, requests=requests)
    early = decided(row, now=due - timedelta(seconds=1))
    assert isinstance(early, Wait)
    assert early.until == due
    assert isinstance(decided(row, now=due), RepublishRequest)


def test_last_request_that_led_to_nothing_may_end_it_where_wanted() -> None:
    row = a_row(updated=NOON + timedelta(minutes=10), republished_at=NOON, requests=3)
    assert isinstance(decided(row, limit=3), Wait)
    assert isinstance(decided(row, limit=3, may_fail=True), End)


def test_no_request_is_published_where_the_limit_is_zero() -> None:
    decision = decided(a_row(), limit=0)
    assert isinstance(decision, Wait)
    assert "dlq_handler.monitor.republish_limit is 0" in decision.explanation
