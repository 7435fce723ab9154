"""By property: a live run is abandoned as a former process's only after two looks without its connection, apart."""

from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.worker import Worker
from dlq_handler.timeouts.case import StaleCase, WorkerView
from dlq_handler.timeouts.decide import decide_stale
from dlq_handler.timeouts.decision import End
from dlq_handler.workers.worker_process import Began, KnownConnection, observe_again, view_of
from tests.support.builders import an_execution
from tests.unit.timeouts.test_decide import LIMITS
from tests.unit.workers.test_worker_process import Look, Process, at

# A list as of a cluster node without statistics of the others: it may leave out any of the processes.
OLD, NEW, THIRD = Process(0, 600, 0), Process(15, 600, 0), Process(16, 600, 0)
PROCESSES = [OLD, NEW, THIRD]
OLD_ALONE, BOTH, NEW_ALONE = {1, 2}, {2}, {0, 2}
WITHOUT_NEW, NONE, MISSING = {1}, {0, 1, 2}, None
LEFT_OUT = st.sampled_from(
    [OLD_ALONE, BOTH, BOTH, NEW_ALONE, NEW_ALONE, NEW_ALONE, WITHOUT_NEW, NONE, MISSING]
)

# Milliseconds: two floats that differ by less than a microsecond are one moment for a datetime.
TIMES = st.integers(20_000, 500_000).map(lambda milliseconds: milliseconds / 1000)

PlannedLook = tuple[float, set[int] | None]
"""The time of a look, and the places of the processes that it leaves out; None: it is not answered."""


@dataclass(frozen=True)
class Step:
    time: float
    names: frozenset[str]
    is_ended: bool
    """The run that OLD began at 5."""


def steps_of(*looks: PlannedLook) -> list[Step]:
    look: KnownConnection | None = None
    steps = []
    for time, left_out in sorted(looks, key=lambda one: one[0]):
        planned = Look(
            time, 0.1, 0.0, is_blind=False, is_answered=left_out is not None, age_error_seconds=0.0,
            left_out=frozenset(left_out or ()),
        )  # fmt: skip
        seen, now = planned.sees(PROCESSES), at(time + 0.1)
        look = observe_again(7, look, seen, checked_at=at(time), answered_at=now)
        view = view_of(look, seen, "no answer")
        row = Worker(id=7, heartbeat_age_seconds=2.0, last_heartbeat=at(time - 2))
        case = StaleCase(
            execution=an_execution(status=ExecutionStatus.RUNNING, updated=at(5), worker_id=7),
            worker=WorkerView(row=row, process=view),
            now=now,
            watched_seconds=3600,
            limits=LIMITS,
            own_run_limit_seconds=10_000,
        )
        is_ended = isinstance(decide_stale(case), End)
        assert not is_ended or view.began(at(5)) is Began.BY_FORMER
        names = frozenset[str]() if seen is None else seen.names
        steps.append(Step(time=time, names=names, is_ended=is_ended))
    return steps


@given(st.lists(st.tuples(TIMES, LEFT_OUT), min_size=2, max_size=12, unique_by=lambda one: one[0]))
@example([(20, BOTH), (30, NEW_ALONE), (40, BOTH), (70, NEW_ALONE)])
@example([(20, BOTH), (30, NEW_ALONE), (40, BOTH), (90, NEW_ALONE)])
@example([(20, BOTH), (30, NEW_ALONE), (40, BOTH), (50, NONE), (90, NEW_ALONE), (100, NEW_ALONE)])
@example([(20, BOTH), (30, NEW_ALONE), (40, WITHOUT_NEW), (70, NEW_ALONE)])
@settings(max_examples=200)
def test_live_run_is_abandoned_only_after_two_looks_in_a_row_without_its_connection(
    planned: list[PlannedLook],
) -> None:
    steps = steps_of((12, OLD_ALONE), *planned)
    for number, step in enumerate(steps):
        if not step.is_ended:
            continue
        before = steps[:number]
        last_listed = max(one.time for one in before if OLD.name in one.names)
        missed = [one.time for one in before if one.time > last_listed and one.names]
        assert missed, f"one look ended it at {step.time}: its connection was listed at {last_listed}"
        # Rounded: 83.52 - 53.52 is a little less than 30 in floating point.
        assert round(step.time - min(missed), 6) >= LIMITS.monitor.confirm_after_seconds


def test_run_of_a_connection_that_two_looks_leave_out_is_abandoned() -> None:
    """The other side of the property, also with a look that found both in between."""
    steps = steps_of((12, OLD_ALONE), (30, NEW_ALONE), (59, NEW_ALONE), (61, NEW_ALONE))
    assert [one.time for one in steps if one.is_ended] == [61]
    again = ((40, BOTH), (50, NEW_ALONE), (79, NEW_ALONE), (81, NEW_ALONE))
    steps = steps_of((12, OLD_ALONE), (30, NEW_ALONE), *again)
    assert [one.time for one in steps if one.is_ended] == [81]
