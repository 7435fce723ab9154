"""Which process began a run, by table and by property: no run is taken for a former process's while the connection of
the process that began it still consumes.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlq_handler.workers.worker_process import (
    MARGIN_SECONDS,
    Began,
    ConnectionObservation,
    KnownConnection,
    ProcessView,
    observe_again,
    view_of,
)
from tests.support.builders import NOON

OLD, NEW = "10.0.0.1:40000 -> 10.0.0.9:5672", "10.0.0.1:40001 -> 10.0.0.9:5672"


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def sight(*names: str, age: float | None = None) -> ConnectionObservation:
    return ConnectionObservation(names=frozenset(names), age_seconds=age)


Seen = tuple[float, ConnectionObservation | None]


def looks(*seen: Seen) -> KnownConnection:
    """One look after the other, each answered a second later; the last."""
    look: KnownConnection | None = None
    for seconds, one in seen:
        look = observe_again(7, look, one, checked_at=at(seconds), answered_at=at(seconds + 1))
    assert look is not None
    return look


def began(updated: float, *seen: Seen) -> Began:
    return view_of(looks(*seen), seen[-1][1], "").began(at(updated))


RESTARTED = ((0, sight(OLD, age=500)), (100, sight(OLD)), (110, sight(NEW, age=6)))


def test_run_from_before_the_last_look_without_the_connection_is_a_former_processs() -> None:
    assert began(100 - MARGIN_SECONDS - 0.001, *RESTARTED) is Began.BY_FORMER
    assert began(-3000, *RESTARTED) is Began.BY_FORMER


def test_run_between_the_two_looks_is_unknown() -> None:
    for updated in (100 - MARGIN_SECONDS, 100, 105, 110.999):
        assert began(updated, *RESTARTED) is Began.UNKNOWN


def test_run_after_the_first_look_with_the_connection_is_the_present_processs() -> None:
    assert began(111, *RESTARTED) is Began.BY_PRESENT
    assert began(5000, *RESTARTED, (4000, sight(NEW))) is Began.BY_PRESENT
    assert began(110, *RESTARTED, (4000, sight(NEW))) is Began.UNKNOWN


def test_first_look_of_all_knows_nothing_of_earlier_runs() -> None:
    assert began(-1000, (0, sight(NEW, age=10))) is Began.UNKNOWN
    assert began(1, (0, sight(NEW, age=10))) is Began.BY_PRESENT


def test_look_that_was_blind_proves_nothing() -> None:
    """RabbitMQ lists a new consumer seconds late, and none for a while after its management plugin was restarted."""
    listed_late = ((0, sight(OLD, age=500)), (10, sight()), (20, sight(NEW, age=14)))
    assert began(7, *listed_late) is Began.UNKNOWN, "the connection was there at 6, before the look at 10"
    assert began(0, *listed_late) is Began.BY_FORMER
    lost_and_found = ((0, sight(OLD, age=500)), (10, sight()), (20, sight(OLD, age=520)))
    assert began(0, *lost_and_found) is Began.UNKNOWN
    assert began(-400, *lost_and_found) is Began.UNKNOWN


@pytest.mark.parametrize("unclear", [None, sight(), sight(OLD, NEW), sight(NEW, "third")])
def test_run_that_is_proven_stays_so_when_its_connection_is_found_again(
    unclear: ConnectionObservation | None,
) -> None:
    before = (*RESTARTED[:2], (110, unclear), (120, unclear))
    assert began(50, *before, (130, sight(OLD, age=630))) is Began.BY_PRESENT
    look = looks(*before, (130, sight(OLD, age=630)))
    assert (look.found_at, look.missing_since) == (at(1), None)
    is_there = unclear is not None and OLD in unclear.names
    assert began(50, *before) is (Began.BY_PRESENT if is_there else Began.UNKNOWN)
    assert looks(*before).missing_since == (None if is_there else at(110))
    assert looks(*before).is_proven(at(50))


def test_name_that_a_younger_connection_has_proves_nothing() -> None:
    """The worker was restarted, and its old port was used again."""
    reused = ((0, sight(OLD, age=500)), (100, sight(OLD)), (110, sight()), (120, sight(OLD, age=5)))
    assert began(50, *reused) is Began.UNKNOWN
    assert began(121, *reused) is Began.BY_PRESENT


def test_several_connections_make_no_look_and_begin_the_second_one_anew() -> None:
    beside = (*RESTARTED[:2], (110, sight(OLD, NEW)))
    view = view_of(looks(*beside), beside[-1][1], "")
    assert view.began(at(0)) is Began.UNKNOWN
    assert view.unknown_explanation == "its queue has consumers on 2 connections"
    alone = (*beside, (120, sight(NEW, age=16)))
    assert began(90, *alone) is Began.BY_FORMER
    assert began(112, *alone) is Began.UNKNOWN, "the old one was still there"
    assert looks(*alone) == KnownConnection(
        worker_id=7,
        checked_at=at(120),
        observed_at=at(120),
        connection=NEW,
        absent_at=at(100),
        found_at=at(121),
    )


def test_run_that_began_while_others_consumed_beside_the_connection_is_unknown() -> None:
    """The one that took it may be gone when the connection is alone again."""
    beside = (*RESTARTED[:2], (110, sight(OLD, NEW)), (120, sight(OLD, NEW)))
    for seen in (beside, (*beside, (130, sight(OLD))), (*beside, (130, None), (140, sight(OLD, age=640)))):
        until = seen[-1][0] + 1
        for updated in (101, 115, 120, until - 0.001):
            assert began(updated, *seen) is Began.UNKNOWN
        assert began(100, *seen) is Began.BY_PRESENT
        assert began(until, *seen) is Began.BY_PRESENT
        assert looks(*seen).unknown_since(at(115)) == at(110)
        view = view_of(looks(*seen), seen[-1][1], "")
        assert not view.began_all_since(at(50))
        assert view.began_all_since(at(until))
    later = (*beside, (130, sight(OLD)), (140, sight(OLD)), (200, sight(OLD, NEW)))
    assert began(135, *later) is Began.BY_PRESENT
    assert began(150, *later) is Began.UNKNOWN


def test_look_without_any_consumer_does_not_end_the_time_with_others() -> None:
    """It found the connection as little as it found the others."""
    blind = (*RESTARTED[:2], (110, sight(OLD, NEW)), (120, sight()))
    again = (*blind, (130, sight(OLD, NEW)))
    assert (looks(*again).shared_from, looks(*again).shared_since) == (at(100), at(110))
    alone = (*blind, (130, sight(OLD)), (140, sight(OLD)))
    assert began(130, *alone) is Began.UNKNOWN
    assert began(131, *alone) is Began.BY_PRESENT
    assert looks(*alone).alone_since == at(131)


def test_run_that_began_while_only_others_were_listed_is_unknown() -> None:
    seen = (*RESTARTED[:2], (110, sight(NEW, "third")), (120, sight(OLD, age=620)))
    assert began(100, *seen) is Began.BY_PRESENT
    assert began(115, *seen) is Began.UNKNOWN
    assert began(121, *seen) is Began.BY_PRESENT


def test_missing_answer_is_unknown() -> None:
    view = view_of(looks((0, None)), None, "the API is away")
    assert view.began(at(0)) is Began.UNKNOWN
    assert view.unknown_explanation == "the API is away"
    assert began(-1000, (0, sight(OLD, age=1)), (10, sight())) is Began.UNKNOWN
    assert view_of(looks((0, sight())), sight(), "").unknown_explanation == "its queue has no consumer"


@pytest.mark.parametrize("unclear", [None, sight(), sight(OLD, NEW)])
def test_run_of_a_former_process_is_unknown_at_a_look_that_is_not_clear(
    unclear: ConnectionObservation | None,
) -> None:
    """What an earlier look has shown does not stand in for the answer that is missing."""
    assert began(50, *RESTARTED) is Began.BY_FORMER
    assert began(50, *RESTARTED, (150, unclear)) is Began.UNKNOWN
    assert began(50, *RESTARTED, (150, unclear), (160, sight(NEW, age=56))) is Began.BY_FORMER


def test_looks_from_before_the_clock_was_set_back_are_forgotten() -> None:
    back = (*RESTARTED, (50, sight(NEW)))
    assert began(40, *back) is Began.UNKNOWN
    assert looks(*back) == KnownConnection(
        worker_id=7, checked_at=at(50), observed_at=at(50), connection=NEW, found_at=at(51)
    )


def test_failed_look_in_between_only_widens_the_unknown_time() -> None:
    assert began(90, (0, sight(OLD, age=9)), (110, sight(NEW, age=6))) is Began.UNKNOWN
    assert began(-10, (0, sight(OLD, age=9)), (110, sight(NEW, age=6))) is Began.BY_FORMER


@dataclass(frozen=True)
class Process:
    """Consumes from its start to its end, both in seconds; the broker lists it for `lingers` longer."""

    start: float
    end: float
    lingers: float

    @property
    def name(self) -> str:
        return f"10.0.0.1:{self.start} -> 10.0.0.9:5672"


@dataclass(frozen=True)
class Look:
    time: float
    answer_seconds: float
    listed_late_seconds: float
    """How late the management API lists a consumer at this look: the statistics interval may be set to minutes."""
    is_blind: bool
    is_answered: bool
    age_error_seconds: float
    left_out: frozenset[int] = frozenset()
    """Places in the list of processes that the answer leaves out, although the broker has them."""

    def sees(self, processes: list[Process]) -> ConnectionObservation | None:
        if not self.is_answered:
            return None
        listed = [
            one
            for place, one in enumerate(processes)
            if not self.is_blind
            and place not in self.left_out
            and one.start <= self.time - self.listed_late_seconds
            and self.time < one.end + one.lingers
        ]
        age = self.time - listed[0].start + self.age_error_seconds if len(listed) == 1 else None
        return ConnectionObservation(
            names=frozenset(one.name for one in listed), age_seconds=None if age is None else max(0.0, age)
        )


SECONDS = st.floats(0, 600)
PROCESSES = st.lists(
    st.builds(
        lambda start, lasts, lingers: Process(start, start + lasts, lingers),
        SECONDS,
        st.floats(1, 400),
        st.sampled_from([0.0, 0.0, 5.0, 120.0]),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda one: one.start,
)
LOOKS = st.lists(
    st.builds(
        Look,
        SECONDS,
        st.floats(0, 5),
        st.sampled_from([0.0, 5.0, 5.0, 60.0]),
        st.sampled_from([False] * 5 + [True]),
        st.sampled_from([True] * 5 + [False]),
        st.floats(-2, 2),
    ),
    min_size=1,
    max_size=40,
    unique_by=lambda one: one.time,
)


@given(
    processes=PROCESSES, planned=LOOKS, run=st.floats(0, 1), written_late=st.sampled_from([0.0, 0.1, 30.0])
)
@example(
    # The plain restart, seen at a 10-s interval: a check that BY_FORMER occurs is below.
    processes=[Process(0, 100, 0), Process(102, 600, 0)],
    planned=[Look(time, 0.1, 5, False, True, 0) for time in range(1, 200, 10)],
    run=0.5,
    written_late=0.0,
)
@example(
    # A blind look, and an age that is 2 s too young because the broker's Date header is: the margin covers it.
    processes=[Process(10, 600, 0)],
    planned=[Look(20, 0.1, 0, True, True, 0), Look(30, 0.1, 0, False, True, -2)],
    run=0.001,
    written_late=0.0,
)
@settings(max_examples=500)
def test_run_is_never_a_former_processs_while_the_connection_that_began_it_consumes(
    processes: list[Process], planned: list[Look], run: float, written_late: float
) -> None:
    look: KnownConnection | None = None
    for one in sorted(planned, key=lambda one: one.time):
        seen = one.sees(processes)
        look = observe_again(
            7, look, seen, checked_at=at(one.time), answered_at=at(one.time + one.answer_seconds)
        )
        view = view_of(look, seen, "no answer")
        for process in processes:
            updated = process.start + run * (process.end - process.start) + written_late
            if process.end > one.time >= updated:
                assert view.began(at(updated)) is not Began.BY_FORMER


@pytest.mark.parametrize("first_look", range(10))
def test_every_restart_is_noticed_at_ten_second_looks(first_look: int) -> None:
    """The other side of the property: a run that began 20 s before the crash is not left unknown."""
    processes = [Process(0, 100, 0), Process(101.5, 600, 0)]
    look: KnownConnection | None = None
    for time in range(first_look, 200, 10):
        seen = Look(time, 0.1, 5, False, True, 0).sees(processes)
        assert seen is not None
        look = observe_again(7, look, seen, checked_at=at(time), answered_at=at(time + 0.1))
    assert look is not None
    assert ProcessView(known=look).began(at(80)) is Began.BY_FORMER
