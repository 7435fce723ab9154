"""Errors raised side by side: the worst is raised, the others are logged."""

from asyncio import CancelledError
from itertools import permutations

import pytest
from structlog.testing import capture_logs

from dlq_handler.database.leadership import LeaseLost, worst_error
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
def test_in_any_order_the_worst_is_raised_and_the_other_is_logged(
    worst: BaseException, milder: Exception
) -> None:
    for errors in permutations((worst, milder)):
        with capture_logs() as logged:
            assert worst_error(errors, loop="scans") is worst
        [line] = logged
        assert line["loop"] == "scans"
        assert str(milder) in (line.get("error"), str(line.get("exc_info")))


def test_a_bug_beside_a_bug_is_logged_as_a_bug() -> None:
    other = ValueError("another")
    with capture_logs() as logged:
        assert worst_error([BUG, other], loop="scans") is BUG

    assert logged == [{"event": "loop.crashed", "loop": "scans", "exc_info": other, "log_level": "error"}]


def test_equal_messages_are_logged_once() -> None:
    with capture_logs() as logged:
        worst_error([AWAY, Unavailable("database", "away"), LOCK, Contended("deadlock")], loop="scans")

    assert [line["error"] for line in logged] == ["deadlock"]
