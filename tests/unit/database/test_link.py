"""Link: how long the database has been answering, and when that is unknown."""

import pytest

from dlq_handler.database import link
from dlq_handler.database.link import Link, silence_within


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The process clock is its sum."""
    parts = [1000.0]
    monkeypatch.setattr(link, "monotonic_seconds", lambda: sum(parts))
    return parts


def test_database_that_hung_while_heartbeats_grew_old_has_a_new_link(clock: list[float]) -> None:
    limit_seconds = 10.0
    of_workers = Link(silence_within(limit_seconds))
    of_workers.record_answer()
    clock.append(5.0)
    of_workers.record_answer()
    assert of_workers.age_seconds == 5
    clock.append(5.1)
    assert of_workers.age_seconds == 0
    of_workers.record_answer()
    clock.append(1.0)
    assert of_workers.age_seconds == 1


def test_link_may_be_as_silent_as_the_health_loop_makes_it_where_limits_are_long() -> None:
    assert silence_within(90) == link.SILENCE_SECONDS


def test_a_link_is_back_once_however_many_saw_it_break() -> None:
    of_database = Link()
    of_database.record_answer()
    of_database.record_break()
    of_database.record_break()
    assert of_database.times_back == 0
    of_database.record_answer()
    of_database.record_answer()
    assert of_database.times_back == 1


def test_a_link_that_never_answered_is_not_back_when_it_does() -> None:
    of_database = Link()
    of_database.record_break()
    of_database.record_answer()
    assert of_database.times_back == 0


def test_a_transaction_that_was_answered_a_short_time_ago_has_no_broken_link(clock: list[float]) -> None:
    of_database = Link(15.0)
    answered_at = sum(clock)
    clock.append(15.0)
    assert of_database.is_answering(answered_at, statement_seconds=32.0)
    clock.append(1.0)
    assert not of_database.is_answering(answered_at, statement_seconds=32.0), "no connection was answered"


def test_a_long_statement_has_no_broken_link_while_other_connections_are_answered(clock: list[float]) -> None:
    of_database = Link(15.0)
    answered_at = sum(clock)
    for _ in range(3):
        clock.append(10.0)
        of_database.record_answer()
    assert of_database.is_answering(answered_at, statement_seconds=32.0)
    clock.append(2.5)
    assert not of_database.is_answering(answered_at, statement_seconds=32.0), "the server had to end it"


def test_an_answer_from_before_a_break_does_not_count_for_a_long_statement(clock: list[float]) -> None:
    of_database = Link(15.0)
    answered_at = sum(clock)
    clock.append(20.0)
    of_database.record_answer()
    of_database.record_break()
    clock.append(1.0)
    assert not of_database.is_answering(answered_at, statement_seconds=32.0)
