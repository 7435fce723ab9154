"""How many executions may be ended: by table, and for any state, count and limit."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.safety.brake import (
    BrakeMode,
    BrakeState,
    BrakeView,
    mode_of,
    must_take_turns,
    room_for,
    split_by_room,
    why_tripped,
)
from dlq_handler.safety.options import BrakeOptions
from tests.support.builders import NOON

MINUTE = timedelta(minutes=1)


def a_policy(limit: int = 100, hold_seconds: float = 600) -> BrakeOptions:
    return BrakeOptions(max_decisions_per_minute=limit, hold_seconds=hold_seconds)


def a_view(ended: int = 0, **state: Any) -> BrakeView:
    return BrakeView(state=BrakeState(**state), ended_last_minute=ended, now=NOON)


def tripped(hold_until: datetime | None) -> dict[str, Any]:
    return {
        "tripped_at": NOON - MINUTE,
        "hold_until": hold_until,
        "tripped_by": "a",
        "explanation": "too many",
    }


@pytest.mark.parametrize(
    ("view", "limit", "mode", "room"),
    [
        pytest.param(a_view(0), 100, BrakeMode.NORMAL, 100, id="nothing ended yet"),
        pytest.param(a_view(60), 100, BrakeMode.NORMAL, 40, id="some ended"),
        pytest.param(a_view(100), 100, BrakeMode.NORMAL, 0, id="at the limit"),
        pytest.param(a_view(130), 100, BrakeMode.NORMAL, 0, id="replicas went past it together"),
        pytest.param(a_view(10**6), 0, BrakeMode.OFF, None, id="no limit is set"),
        pytest.param(
            a_view(**tripped(NOON + MINUTE)),
            100,
            BrakeMode.HOLDING,
            0,
            id="tripped, the hold lasts",
        ),
        pytest.param(a_view(**tripped(None)), 100, BrakeMode.HOLDING, 0, id="until released"),
        pytest.param(a_view(60, **tripped(NOON)), 100, BrakeMode.LIMITED, 40, id="the hold is over"),
        pytest.param(a_view(100, **tripped(NOON - MINUTE)), 100, BrakeMode.LIMITED, 0, id="the limit's rate"),
        pytest.param(a_view(**tripped(None)), 0, BrakeMode.OFF, None, id="tripped by another's limit"),
        pytest.param(a_view(500, released_until=NOON + MINUTE), 100, BrakeMode.RELEASED, None, id="released"),
        pytest.param(a_view(60, released_until=NOON), 100, BrakeMode.NORMAL, 40, id="the release is over"),
    ],
)
def test_state_and_count_say_how_many_may_be_ended(
    view: BrakeView, limit: int, mode: BrakeMode, room: int | None
) -> None:
    assert mode_of(view, a_policy(limit)) is mode
    assert room_for(view, a_policy(limit)) == room


moments = st.none() | st.integers(-7200, 7200).map(lambda seconds: NOON + timedelta(seconds=seconds))
states = st.builds(
    BrakeState, tripped_at=moments, hold_until=moments, released_at=moments, released_until=moments
)


@given(state=states, ended=st.integers(0, 10**7), limit=st.integers(1, 10**7))
def test_no_state_lets_more_than_the_limit_through_in_a_minute_but_a_release(
    state: BrakeState, ended: int, limit: int
) -> None:
    view = BrakeView(state=state, ended_last_minute=ended, now=NOON)
    room = room_for(view, a_policy(limit))
    if room is not None:
        assert room <= max(0, limit - ended)
    else:
        assert state.tripped_at is None
        assert state.released_until
        assert state.released_until > NOON


def test_why_it_tripped_has_the_figures() -> None:
    text = why_tripped(a_view(100), a_policy(100), changed=40, left_out=7)
    assert text.startswith("100 executions ended in 60 s, 40 of them in one transaction")
    assert "7 more" in text
    assert text.endswith("limit is 100")
    text = why_tripped(a_view(103), a_policy(100), changed=40, left_out=7)
    assert text.endswith("limit is 100, and batches that ran at the same time exceeded it by 3")


@pytest.mark.parametrize(
    ("view", "limit", "takes_turns"),
    [
        pytest.param(a_view(0), 2000, False, id="room for four batches"),
        pytest.param(a_view(1), 2000, True, id="one less"),
        pytest.param(a_view(0), 100, True, id="a limit below four batches"),
        pytest.param(a_view(9000), 0, False, id="off"),
        pytest.param(a_view(9000, released_until=NOON + MINUTE), 2000, False, id="released"),
        pytest.param(a_view(0, **tripped(NOON)), 9000, True, id="limited"),
        pytest.param(a_view(0, **tripped(None)), 9000, False, id="nothing is ended, so nothing is asked for"),
    ],
)
def test_transactions_take_turns_with_little_room_and_in_limited_mode(
    view: BrakeView, limit: int, takes_turns: bool
) -> None:
    assert must_take_turns(view, a_policy(limit), batch_size=500) is takes_turns


@pytest.mark.parametrize(
    ("room", "fitting", "left_out"),
    [
        (None, [0, 1, 2, 3, 4, 5], []),
        (3, [0, 1, 2, 3, 4, 5], []),
        (2, [0, 1, 2, 3, 4], [5]),
        (1, [0, 2, 4], [1, 3, 5]),
        (0, [2], [0, 1, 3, 4, 5]),
    ],
)
def test_end_without_room_is_left_out_with_all_later_decisions_about_its_execution(
    room: int | None, fitting: list[int], left_out: list[int]
) -> None:
    wanted = [(1, True), (2, True), (None, False), (2, False), (1, False), (3, True)]
    assert split_by_room(wanted, room) == (fitting, left_out)
