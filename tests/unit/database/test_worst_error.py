"""Errors that come side by side: the worst is raised, the others are told."""

from asyncio import CancelledError
from itertools import permutations

import pytest
from structlog.testing import capture_logs

from dlq_handler.database.leadership import LeaseLost
from dlq_handler.database.worst_error import worst_error
from dlq_handler.errors import Contended, GateClosed, Unavailable

BUG = TypeError("a bug")
AWAY = Unavailable("database", "away")
LEASE, LOCK = LeaseLost("leader"), Contended("deadlock")


@pytest.mark.parametrize(
    ("worst", "milder"),
    [
        (BUG, AWAY),
        (BUG, LEASE),
        (BUG, LOCK),
        (AWAY, LEASE),
        (AWAY, LOCK),
        (GateClosed("a standby"), LOCK),
        (CancelledError(), BUG),
    ],
    ids=repr,
)
def test_in_whatever_order_they_came_the_worst_is_raised_and_the_other_is_told(
    worst: BaseException, milder: Exception
) -> None:
    for errors in permutations((worst, milder)):
        with capture_logs() as told:
            assert worst_error(errors, loop="scans") is worst
        [line] = told
        assert line["loop"] == "scans"
        assert str(milder) in (line.get("error"), str(line.get("exc_info")))


def test_a_bug_beside_a_bug_is_told_as_the_bug_it_is() -> None:
    other = ValueError("another")
    with capture_logs() as told:
        assert worst_error([BUG, other], loop="scans") is BUG

    assert told == [{"event": "loop.crashed", "loop": "scans", "exc_info": other, "log_level": "error"}]


def test_what_says_the_very_same_is_told_once() -> None:
    with capture_logs() as told:
        worst_error([AWAY, Unavailable("database", "away"), LOCK, Contended("deadlock")], loop="scans")

    assert [line["error"] for line in told] == ["deadlock"]
