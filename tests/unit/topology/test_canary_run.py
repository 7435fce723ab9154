"""What a canary run concludes from the stages that its canaries reached."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from dlq_handler.topology.canary_run import (
    CanaryResult,
    CanaryRunReport,
    PublishedCanary,
    RunConclusion,
    RunProblem,
    Stage,
    StoredCanary,
    cannot_run,
    expired_problem,
    ids_of_expired,
    replica_problem,
    report,
    result_of,
)
from dlq_handler.topology.consumers import Consumers
from tests.support.builders import NOON

PREFIX = "dlq-handler."
REPLICA, STOCK = "dlq-handler.one", "executor.dlq"


def a_stored(number: int = 1, **changes: Any) -> StoredCanary:
    """Confirmed after 0.1 s, 10 s old, not received."""
    stored = StoredCanary(
        id=UUID(int=number),
        created_at=NOON,
        ttl_seconds=5.0,
        age_seconds=10.0,
        confirmed_seconds=0.1,
        received_seconds=None,
        received_by=None,
    )
    return replace(stored, **changes)


def a_result(
    stored: StoredCanary | None,
    *,
    error: str | None = None,
    expired_seconds: float | None = 5.1,
    problem: RunProblem = RunProblem.BROKEN_ROUTE,
    worker_id: int = 7,
) -> CanaryResult:
    return result_of(
        PublishedCanary(id=UUID(int=1), worker_id=worker_id, error=error),
        stored,
        expired_seconds=expired_seconds,
        limit_seconds=30.0,
        problem_if_expired=problem,
    )


RECEIVED = a_stored(received_seconds=5.2, received_by="one")


def test_a_canary_is_never_received_before_it_expired() -> None:
    assert a_result(RECEIVED, expired_seconds=5.3).expired_seconds == 5.2
    assert a_result(RECEIVED, expired_seconds=5.1).expired_seconds == 5.1


@pytest.mark.parametrize(
    ("canaries", "is_queue_empty", "newest_received_age", "expired"),
    [
        pytest.param([a_stored(1), a_stored(2)], False, None, set(), id="all may still be in the queue"),
        pytest.param([a_stored(1), a_stored(2)], True, None, {1, 2}, id="the queue is empty"),
        pytest.param(
            [a_stored(1), a_stored(2, received_seconds=5.2), a_stored(3)],
            False,
            None,
            {1, 2},
            id="a later one of the run was received",
        ),
        pytest.param(
            [a_stored(1)], False, 9.8, {1}, id="one that was written after its confirm was received"
        ),
        pytest.param(
            [a_stored(1)], False, 9.95, set(), id="one that was written before its confirm proves nothing"
        ),
        pytest.param(
            [a_stored(1, confirmed_seconds=None)], True, 1.0, set(), id="it may not have entered the queue"
        ),
    ],
)
def test_canaries_leave_their_queue_in_order(
    canaries: list[StoredCanary], is_queue_empty: bool, newest_received_age: float | None, expired: set[int]
) -> None:
    found = ids_of_expired(canaries, is_queue_empty=is_queue_empty, newest_received_age=newest_received_age)
    assert found == {UUID(int=number) for number in expired}


@pytest.mark.parametrize(
    ("stored", "changes", "stage", "problem"),
    [
        (RECEIVED, {}, Stage.RECEIVED, None),
        (replace(RECEIVED, received_seconds=35.1), {}, Stage.RECEIVED, None),
        (replace(RECEIVED, received_seconds=35.2), {}, Stage.RECEIVED, RunProblem.LATE),
        (RECEIVED, {"error": "no answer"}, Stage.RECEIVED, None),
        (a_stored(), {}, Stage.EXPIRED, RunProblem.BROKEN_ROUTE),
        (a_stored(), {"expired_seconds": None}, Stage.CONFIRMED, RunProblem.NOT_EXPIRED),
        (a_stored(confirmed_seconds=None), {"error": "NO_ROUTE"}, Stage.SENT, RunProblem.NOT_CONFIRMED),
        (
            None,
            {"expired_seconds": None, "problem": RunProblem.CONNECTION_LOST},
            Stage.CONFIRMED,
            RunProblem.CONNECTION_LOST,
        ),
    ],
)
def test_stage_and_problem_of_a_canary(
    stored: StoredCanary | None, changes: dict[str, Any], stage: Stage, problem: RunProblem | None
) -> None:
    result = a_result(stored, **changes)
    assert (result.stage, result.problem) == (stage, problem)


@pytest.mark.parametrize(
    ("consumers", "received_by", "problem"),
    [
        (None, (), RunProblem.NO_REPLICA),
        (Consumers(count=0, ready=3, tags=()), (), RunProblem.NO_REPLICA),
        (Consumers(count=1, ready=0, tags=(STOCK,)), (), RunProblem.NO_REPLICA),
        (Consumers(count=2, ready=0, tags=(STOCK, REPLICA)), (), RunProblem.OTHER_CONSUMER),
        (Consumers(count=1, ready=0, tags=None), (), RunProblem.UNIDENTIFIED_CONSUMER),
        (Consumers(count=2, ready=0, tags=None), ("one",), RunProblem.UNIDENTIFIED_CONSUMER),
        (Consumers(count=1, ready=0, tags=None), ("one",), RunProblem.BROKEN_ROUTE),
        (Consumers(count=1, ready=4, tags=(REPLICA,)), ("one",), RunProblem.BACKLOG),
        (Consumers(count=1, ready=0, tags=(REPLICA,)), (), RunProblem.BROKEN_ROUTE),
    ],
)
def test_an_expired_canary_proves_a_broken_route_only_if_nothing_else_explains_it(
    consumers: Consumers | None, received_by: tuple[str, ...], problem: RunProblem
) -> None:
    assert expired_problem(consumers, own_prefix=PREFIX, received_by=received_by) is problem


def test_a_consumer_whose_owner_is_unknown_may_be_a_replica() -> None:
    assert replica_problem(Consumers(count=1, ready=0, tags=None), own_prefix=PREFIX) is None


def reported(*canaries: CanaryResult, consumers: Consumers | None = None, **changes: Any) -> CanaryRunReport:
    return report(
        canaries,
        consumers,
        queue="q",
        sent_at=NOON,
        ttl_seconds=5.0,
        limit_seconds=30.0,
        own_prefix=PREFIX,
        **changes,
    )


def test_all_received_is_arrived() -> None:
    report = reported(
        a_result(RECEIVED), a_result(replace(RECEIVED, received_by="two", received_seconds=6.0))
    )
    assert (report.conclusion, report.problem, report.action) == (RunConclusion.ARRIVED, None, None)
    assert report.explanation == "2 of 2 canaries arrived within 6.00 s, at one, two."


def test_a_broken_route_names_the_workers() -> None:
    report = reported(a_result(RECEIVED), a_result(a_stored(), worker_id=9))
    assert (report.conclusion, report.problem) == (RunConclusion.NOT_ARRIVED, RunProblem.BROKEN_ROUTE)
    assert report.explanation == (
        "1 of 2 canaries did not arrive within 35 s. They expired, but did not reach queue 'q'. "
        "The route is broken for worker 9."
    )
    assert report.action is not None
    assert "topology check" in report.action


@pytest.mark.parametrize(
    ("canary", "changes", "problem", "says"),
    [
        (
            a_result(a_stored(confirmed_seconds=None), error="NO_ROUTE"),
            {},
            RunProblem.NOT_CONFIRMED,
            "did not confirm them: NO_ROUTE",
        ),
        (
            a_result(a_stored(), problem=RunProblem.CONNECTION_LOST),
            {"error": "broker: away"},
            RunProblem.CONNECTION_LOST,
            "broker: away",
        ),
    ],
)
def test_what_could_not_be_observed_is_unknown(
    canary: CanaryResult, changes: dict[str, Any], problem: RunProblem, says: str
) -> None:
    report = reported(a_result(RECEIVED), canary, **changes)
    assert (report.conclusion, report.problem) == (RunConclusion.UNKNOWN, problem)
    assert says in report.explanation


def test_one_canary_that_certainly_did_not_arrive_outweighs_unknown_ones() -> None:
    report = reported(a_result(a_stored(confirmed_seconds=None), error="NO_ROUTE"), a_result(a_stored()))
    assert (report.conclusion, report.problem) == (RunConclusion.NOT_ARRIVED, RunProblem.BROKEN_ROUTE)


@pytest.mark.parametrize("problem", RunProblem)
def test_every_problem_has_an_explanation_and_an_action(problem: RunProblem) -> None:
    consumers = Consumers(count=2, ready=3, tags=(STOCK, REPLICA))
    report = reported(replace(a_result(a_stored()), problem=problem), consumers=consumers)
    assert report.problem is problem
    assert report.explanation.endswith(".")
    assert report.action
    assert cannot_run(problem, "", queue="q", limit_seconds=30.0).conclusion is RunConclusion.UNKNOWN
