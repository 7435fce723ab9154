"""That no worker is available is a problem of its own, beside the single workers that are unavailable."""

from dataclasses import replace
from typing import Any

import pytest

from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.diagnosis import Diagnosis, Health
from dlq_handler.diagnosis.view import LettersFact, Unknown, UnknownCause
from dlq_handler.host.worker import QueueObservation
from tests.support.views import a_brake, a_view, a_worker, ago

OK, PROBLEM, UNKNOWN = Health.OK, Health.PROBLEM, Health.UNKNOWN

DECLINED = LettersFact(span_seconds=900, unreadable=0, unrelated=0, before=0, declined=482)


def gone(number: int, *, silent_seconds: float = 1920, **known: Any) -> Any:
    return a_worker(number=number, silent_seconds=silent_seconds, queue=None, **known)


def by_kind(**changed: Any) -> dict[str, Diagnosis]:
    return {one.check: one for one in diagnose(a_view(**changed))}


def test_an_unavailable_worker_is_named_and_the_last_one_means_that_none_is_left() -> None:
    one_left = by_kind(workers=(gone(1), gone(2), a_worker(number=3)))
    none_left = by_kind(workers=(gone(1), gone(2), gone(3)))

    assert (one_left["worker unavailable"].health, one_left["workers"].health) == (PROBLEM, OK)
    assert (none_left["worker unavailable"].health, none_left["workers"].health) == (PROBLEM, PROBLEM)


def test_without_a_worker_that_comes_first_with_the_numbers_before_the_single_workers() -> None:
    workers = (gone(1, ended_last_hour=5, scheduled=2), gone(2), gone(3, silent_seconds=900))
    first, second, *_ = diagnose(a_view(workers=workers, requested=58, letters=DECLINED))

    assert first.check == "workers"
    assert first.explanation == (
        "All 3 workers have been unavailable for 10 min; dlq-handler ended 5 executions in the last hour, 60 wait, the "
        "scheduler rejected 482 executions in the last 15 min."
    )
    assert first.since == ago(600), "since the last of them went"
    assert (second.check, second.headline) == ("worker unavailable", "3 workers are unavailable")


def test_unknown_harm_is_not_zero() -> None:
    unknown = Unknown("not allowed")
    found = by_kind(workers=(gone(7, ended_last_hour=None),), requested=unknown, letters=unknown)["workers"]

    assert found.explanation.endswith(
        "dlq-handler ended an unknown number of executions in the last hour, an unknown number wait."
    )


@pytest.mark.parametrize(
    ("consumed", "word"), [((), "unavailable"), ((1,), "unavailable or hung"), ((1, 2), "hung")], ids=str
)
def test_workers_without_heartbeat_that_consume_are_not_unavailable(
    consumed: tuple[int, ...], word: str
) -> None:
    held = QueueObservation(consumers=1, ready=0, unacked=1)
    workers = [
        a_worker(number=number, silent_seconds=600, queue=held if number in consumed else None)
        for number in (1, 2)
    ]
    found = by_kind(workers=workers)["workers"]

    assert found.explanation.startswith(f"All 2 workers have been {word} for 5 min; ")


def test_a_young_replica_does_not_report_that_no_worker_is_left() -> None:
    found = by_kind(workers=(a_worker(silent_seconds=600, watched_seconds=10, queue=None),))["workers"]

    assert found.health is UNKNOWN
    assert found.unknown_cause is UnknownCause.TAKES_TIME


def test_workers_without_heartbeat_for_days_do_not_count_as_unavailable() -> None:
    found = by_kind(workers=(gone(1), gone(2), gone(3, silent_seconds=200_000)))["workers"]

    assert found.explanation.startswith("All 2 workers have been unavailable")


def test_workers_that_work_and_are_marked_inactive_are_a_problem_once_requests_are_rejected() -> None:
    marked = [a_worker(name="worker-shell", status="inactive"), a_worker(number=8, status="inactive")]
    found = by_kind(workers=marked, letters=DECLINED)["workers"]
    assert found.health is PROBLEM
    assert found.headline == "Active workers are marked inactive and get no work"

    all_stopped = by_kind(workers=marked)["workers"]
    others_are_missing = by_kind(workers=[a_worker()], letters=DECLINED)["workers"]
    assert (all_stopped.health, others_are_missing.health) == (OK, OK)


def test_while_the_brake_holds_the_number_of_executions_that_were_turned_down_is_unknown() -> None:
    """Their dead letters wait behind the brake, so that none would be counted."""
    none, brake = replace(DECLINED, declined=0), a_brake(tripped_at=ago(60), hold_until=ago(-540))
    found = by_kind(workers=(gone(1), gone(2)), requested=58, letters=none, brake=brake)["workers"]

    assert found.explanation.endswith(
        "58 wait; how many the scheduler rejected is unknown, because the brake pauses the intake."
    )


@pytest.mark.parametrize(
    ("stuck", "says"), [(1, "1 execution was requested again"), (7, "7 executions were")]
)
def test_executions_that_are_not_requested_again_are_a_problem_that_says_what_to_do(
    stuck: int, says: str
) -> None:
    found = by_kind(at_request_limit=stuck)["requests"]

    assert found.health is PROBLEM
    assert found.headline == "Executions are requested again and never scheduled"
    assert found.explanation.startswith(says)
    assert "republish_limit" in found.explanation
    assert by_kind(at_request_limit=0)["requests"].health is OK


@pytest.mark.parametrize(
    ("stuck", "health", "says"),
    [(1, PROBLEM, "1 execution was not scheduled in time"), (7, PROBLEM, "7 executions were"), (0, OK, "")],
)
def test_republishing_that_is_off_is_said_with_and_without_executions_that_wait(
    stuck: int, health: Health, says: str
) -> None:
    found = by_kind(at_request_limit=stuck, republishes_requests=False)["requests"]

    assert found.health is health
    assert found.explanation.startswith(says)
    texts = [found.explanation, *found.evidence]
    assert any("dlq_handler.monitor.republish_requests is false" in line for line in texts)
