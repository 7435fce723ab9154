"""By property: which looks may end a live run at its limit, with answers that are missing, empty, or list several
connections.
"""

from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.worker import Worker
from dlq_handler.timeouts.case import StaleCase, WorkerView
from dlq_handler.timeouts.decide import decide_stale
from dlq_handler.timeouts.decision import End
from dlq_handler.workers.worker_process import KEPT_SECONDS, Began, KnownConnection, observe_again, view_of
from tests.support.builders import an_execution
from tests.unit.timeouts.test_decide import LIMITS
from tests.unit.workers.test_worker_process import PROCESSES, Look, Process, at

# Constant within one history: a consumer that was listed stays listed.
LATE_SECONDS = st.sampled_from([0.0, 5.0, 60.0])
ANSWERED, BLIND, MISSING = (False, True), (True, True), (False, False)
LOOKS = st.lists(
    st.builds(
        lambda time, answer_seconds, kind, age_error: Look(
            time, answer_seconds, 0.0, kind[0], kind[1], age_error
        ),
        st.floats(0, 600),
        st.floats(0, 5),
        st.sampled_from([ANSWERED, ANSWERED, BLIND, MISSING]),
        st.floats(-2, 2),
    ),
    min_size=2,
    max_size=60,
    unique_by=lambda one: one.time,
)
LIVE, SECOND = Process(0, 1000, 0), Process(220, 240, 0)


def a_look(time: float, kind: tuple[bool, bool] = ANSWERED) -> Look:
    return Look(time, 0.1, 0.0, *kind, 0.0)


EVERY_TEN_SECONDS = [a_look(time) for time in range(5, 600, 10)]


@dataclass(frozen=True)
class Step:
    time: float
    is_found: bool
    """The connection of the process that began the run."""
    began: Began
    is_proven: bool
    """The run, by this look, to be the process's."""
    is_ended: bool


def steps_of(
    processes: list[Process], planned: list[Look], late: float, owner: Process, run: float
) -> list[Step]:
    """The looks from the beginning of the run to the end of its process. Its limit is one second, and the minute."""
    look: KnownConnection | None = None
    steps = []
    for one in sorted(planned, key=lambda one: one.time):
        listed = Look(
            one.time, one.answer_seconds, late, one.is_blind, one.is_answered, one.age_error_seconds
        )
        seen, now = listed.sees(processes), at(one.time + one.answer_seconds)
        look = observe_again(7, look, seen, checked_at=at(one.time), answered_at=now)
        view = view_of(look, seen, "no answer")
        if not run <= one.time < owner.end:
            continue
        case = StaleCase(
            execution=an_execution(status=ExecutionStatus.RUNNING, updated=at(run), worker_id=7),
            worker=WorkerView(
                row=Worker(id=7, heartbeat_age_seconds=2.0, last_heartbeat=at(one.time - 2)), process=view
            ),
            now=now,
            watched_seconds=3600,
            limits=LIMITS,
            own_run_limit_seconds=1,
        )
        began = view.began(at(run))
        steps.append(
            Step(
                time=one.time + one.answer_seconds,
                is_found=seen is not None and owner.name in seen.names,
                began=began,
                is_proven=began is Began.BY_PRESENT and look.connection == owner.name,
                is_ended=isinstance(decide_stale(case), End),
            )
        )
    return steps


@given(processes=PROCESSES, planned=LOOKS, late=LATE_SECONDS, share=st.floats(0, 1))
@example(processes=[LIVE], planned=[*EVERY_TEN_SECONDS, a_look(301, MISSING)], late=0.0, share=0.02)
@example(processes=[LIVE], planned=[*EVERY_TEN_SECONDS, a_look(301, BLIND)], late=0.0, share=0.02)
@example(processes=[LIVE, SECOND], planned=EVERY_TEN_SECONDS, late=5.0, share=0.02)
@example(
    # Not found for 60 s, found beside another, then not found again.
    processes=[LIVE, SECOND],
    planned=[a_look(5), a_look(25), *(a_look(time, MISSING) for time in range(100, 220, 10)), a_look(225),
             a_look(230, MISSING)],
    late=0.0,
    share=0.02,
)  # fmt: skip
@settings(max_examples=200)
def test_live_run_ends_at_its_limit_only_after_looks_that_did_not_find_its_process(
    processes: list[Process], planned: list[Look], late: float, share: float
) -> None:
    owner = processes[0]
    run = owner.start + share * (owner.end - owner.start)
    steps = steps_of(processes, planned, late, owner, run)
    for number, step in enumerate(steps):
        if not step.is_ended:
            continue
        before = steps[:number]
        assert step.began is Began.UNKNOWN
        if not any(one.is_proven for one in before):
            continue
        assert not step.is_found, "proven once, it is never ended while its connection is listed"
        found = [one.time for one in before if one.is_found]
        missed = [one.time for one in before if one.time > max(found)]
        assert missed, "one answer that is missing ended it"
        assert step.time - min(missed) >= KEPT_SECONDS - 5, (
            "the time of a look is up to 5 s before its answer"
        )


def test_run_of_a_process_that_is_not_found_any_more_ends() -> None:
    """The other side of the property."""
    planned = [a_look(5), a_look(25), *(a_look(time, MISSING) for time in range(105, 300, 10))]
    ended = [step.time for step in steps_of([LIVE], planned, 0.0, LIVE, run=20) if step.is_ended]
    assert min(ended) == 105 + KEPT_SECONDS + 0.1
