"""When the view is unreliable: a clock that jumped, dead letters of unknown executions."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.safety.gate import (
    JUMP_SECONDS,
    LEAST_LETTERS,
    REMEMBERED,
    ClockReading,
    is_wrong_database,
    jump_seconds,
    latest,
    recall,
    unknown_among,
)
from tests.support.builders import NOON


def a_look(database_seconds: float, asked_at: float, took: float = 0.0) -> ClockReading:
    return ClockReading(
        database_time=NOON + timedelta(seconds=database_seconds),
        asked_at=asked_at,
        answered_at=asked_at + took,
    )


@pytest.mark.parametrize(
    ("before", "after", "jumped"),
    [
        pytest.param(a_look(0, 100), a_look(2, 102), 0, id="both clocks went on alike"),
        pytest.param(a_look(0, 100), a_look(6, 102), 0, id="within tolerance"),
        pytest.param(a_look(0, 100), a_look(3602, 102), 3600, id="an hour ahead"),
        pytest.param(a_look(0, 100), a_look(-3598, 102), -3600, id="an hour back"),
        pytest.param(a_look(0, 100, took=0), a_look(12, 102, took=10), 0, id="a slow answer is no jump"),
        pytest.param(a_look(0, 100, took=10), a_look(2, 112), 0, id="nor a slow answer before"),
        pytest.param(a_look(0, 100), a_look(60, 160), 0, id="a long pause is no jump"),
        pytest.param(a_look(0, 100), a_look(60, 102), 58, id="our machine slept, its clock too"),
    ],
)
def test_jump_is_what_neither_clock_nor_answer_time_explains(
    before: ClockReading, after: ClockReading, jumped: float
) -> None:
    assert jump_seconds(before, after) == pytest.approx(jumped)


seconds = st.floats(0, 1e6)


@given(
    passed=seconds,
    first_took=st.floats(0, 60),
    took=st.floats(0, 60),
    part=st.floats(0, 1),
    other=st.floats(0, 1),
)
def test_steady_clocks_never_show_a_jump_however_slow_the_answers(
    passed: float, first_took: float, took: float, part: float, other: float
) -> None:
    # The database reads its clock somewhere between question and answer.
    before = ClockReading(
        database_time=NOON + timedelta(seconds=part * first_took), asked_at=0.0, answered_at=first_took
    )
    asked_at = first_took + passed
    after = ClockReading(
        database_time=NOON + timedelta(seconds=asked_at + other * took),
        asked_at=asked_at,
        answered_at=asked_at + took,
    )
    assert jump_seconds(before, after) == 0


@given(jump=st.floats(JUMP_SECONDS + 0.1, 1e6), passed=seconds)
def test_every_jump_beyond_the_tolerance_shows_in_its_direction(jump: float, passed: float) -> None:
    before = a_look(0, 0)
    assert jump_seconds(before, a_look(passed + jump, passed)) == pytest.approx(jump, abs=1e-3)
    assert jump_seconds(before, a_look(passed - jump, passed)) == pytest.approx(-jump, abs=1e-3)


def found(known: int, unknown: int) -> list[tuple[int, bool]]:
    return [*((one, True) for one in range(known)), *((1000 + one, False) for one in range(unknown))]


@pytest.mark.parametrize(
    ("known", "unknown", "percent", "is_wrong"),
    [
        (0, LEAST_LETTERS - 1, 50, False),
        (0, LEAST_LETTERS, 50, True),
        (10, 10, 50, True),
        (11, 10, 50, False),
        (500, 30, 50, False),
        (0, 500, 0, False),
        (1, 99, 100, False),
        (0, 100, 100, True),
    ],
)
def test_many_letters_for_unknown_executions_mean_the_wrong_database(
    known: int, unknown: int, percent: int, is_wrong: bool
) -> None:
    assert is_wrong_database(recall({}, found(known, unknown)), unknown_percent=percent) is is_wrong


def test_letter_that_comes_again_is_no_further_witness() -> None:
    again = [(1, False)] * (2 * LEAST_LETTERS)
    assert recall({}, again) == {1: False}


def test_execution_that_exists_by_now_speaks_for_the_database() -> None:
    assert recall({1: False, 2: False}, [(1, True)]) == {2: False, 1: True}


def test_only_the_latest_are_remembered() -> None:
    witnesses = recall({}, found(REMEMBERED, REMEMBERED))
    assert latest(witnesses) == dict.fromkeys(range(1000, 1000 + REMEMBERED), False)
    assert unknown_among(latest(witnesses)) == list(range(1000, 1000 + REMEMBERED))
