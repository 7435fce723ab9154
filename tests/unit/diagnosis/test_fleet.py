"""That nobody is there who could take what is asked for is a problem of its own, beside who is gone."""

from dataclasses import replace
from typing import Any

import pytest

from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.diagnosis import Diagnosis
from dlq_handler.diagnosis.observation import Health
from dlq_handler.diagnosis.view import LettersSeen, Unknown
from dlq_handler.host.worker import QueueObservation
from tests.support.views import a_brake, a_view, a_worker, ago

OK, PROBLEM, UNKNOWN = Health.OK, Health.PROBLEM, Health.UNKNOWN

DECLINED = LettersSeen(span_seconds=900, unreadable=0, unrelated=0, before=0, declined=482)


def gone(number: int, *, silent_seconds: float = 1920, **known: Any) -> Any:
    return a_worker(number=number, silent_seconds=silent_seconds, queue=None, **known)


def by_kind(**changed: Any) -> dict[str, Diagnosis]:
    return {one.kind: one for one in diagnose(a_view(**changed))}


def test_one_that_goes_is_told_by_name_and_the_last_one_tells_that_nobody_is_left() -> None:
    one_left = by_kind(workers=(gone(1), gone(2), a_worker(number=3)))
    none_left = by_kind(workers=(gone(1), gone(2), gone(3)))

    assert (one_left["worker gone"].health, one_left["workers"].health) == (PROBLEM, OK)
    assert (none_left["worker gone"].health, none_left["workers"].health) == (PROBLEM, PROBLEM)


def test_where_nobody_is_left_that_comes_first_with_the_numbers_and_who_is_gone_behind_it() -> None:
    workers = (gone(1, ended_last_hour=5, scheduled=2), gone(2), gone(3, silent_seconds=900))
    first, second, *_ = diagnose(a_view(workers=workers, requested=58, letters=DECLINED))

    assert first.kind == "workers"
    assert first.sentence == (
        "all 3 have been gone for 10 min; 5 executions were ended by us in the last hour, 60 wait, the scheduler "
        "turned down 482 executions in the last 15 min"
    )
    assert first.since == ago(600), "since the last of them went"
    assert first.runbook.endswith("#no-workers")
    assert (second.kind, second.sentence) == (
        "worker gone",
        "3 are gone; worker-python (1) has been gone longest, for 27 min",
    )
    assert "start them again" in (second.next_step or "")


def test_the_only_one_is_named() -> None:
    found = by_kind(workers=(gone(7, ended_last_hour=611),), requested=1, letters=DECLINED)["workers"]

    assert found.sentence.startswith(
        "worker-python (7) has been gone for 27 min, and no other is there; 611 executions were ended by us in the "
        "last hour, 1 waits, the scheduler turned down 482 executions"
    )


def test_what_nobody_knows_of_the_harm_is_no_zero() -> None:
    unknown = Unknown("not allowed")
    found = by_kind(workers=(gone(7, ended_last_hour=None),), requested=unknown, letters=unknown)["workers"]

    assert found.sentence.endswith(
        "an unknown number of executions were ended by us in the last hour, an unknown number wait"
    )


@pytest.mark.parametrize(
    ("consumed", "word"), [((), "gone"), ((1,), "gone or hung"), ((1, 2), "hung")], ids=str
)
def test_those_that_are_silent_and_keep_their_queue_are_not_called_gone(
    consumed: tuple[int, ...], word: str
) -> None:
    held = QueueObservation(consumers=1, ready=0, unacked=1)
    workers = [
        a_worker(number=number, silent_seconds=600, queue=held if number in consumed else None)
        for number in (1, 2)
    ]
    found = by_kind(workers=workers)["workers"]

    assert found.sentence.startswith(f"all 2 have been {word} for 5 min; ")


def test_nobody_says_that_none_is_left_who_has_not_watched_for_long_enough() -> None:
    found = by_kind(workers=(a_worker(silent_seconds=600, watched_seconds=10, queue=None),))["workers"]

    assert found.health is UNKNOWN
    assert "we have watched for 10 s only" in found.sentence
    assert found.next_step == "wait: it can be told when we have watched for long enough"


def test_workers_that_were_there_days_ago_do_not_count_among_those_that_are_gone() -> None:
    found = by_kind(workers=(gone(1), gone(2), gone(3, silent_seconds=200_000)))["workers"]

    assert found.sentence.startswith("all 2 have been gone")


def test_workers_that_work_and_are_marked_inactive_are_a_problem_once_requests_are_rejected() -> None:
    marked = [a_worker(name="worker-shell", status="inactive"), a_worker(number=8, status="inactive")]
    found = by_kind(workers=marked, letters=DECLINED)["workers"]
    assert found.health is PROBLEM
    assert "2 workers report and consume, but are inactive" in found.sentence
    assert "482 executions were turned down" in found.sentence
    assert "restart them" in str(found.next_step)
    assert "restart it: it registers" in str(
        by_kind(workers=marked[:1], letters=DECLINED)["workers"].next_step
    )

    nobody_misses_them = by_kind(workers=marked)["workers"]
    others_are_missing = by_kind(workers=[a_worker()], letters=DECLINED)["workers"]
    assert (nobody_misses_them.health, others_are_missing.health) == (OK, OK)


@pytest.mark.parametrize(
    ("workers", "about"),
    [
        ((gone(1), gone(2), a_worker(number=3)), {"worker gone": "1 2", "workers": ""}),
        # That all are gone is one and the same, however many they are.
        ((gone(2), gone(1)), {"worker gone": "1 2", "workers": ""}),
        ((gone(2),), {"worker gone": "2", "workers": "2"}),
        (
            (
                a_worker(number=12, silent_seconds=1920),
                a_worker(number=3, silent_seconds=1920),
                a_worker(number=4),
            ),
            {"worker hung": "3 12"},
        ),
        (
            (a_worker(number=5, queue=None), a_worker(number=6)),
            {"worker queue": "5", "worker gone": "", "worker hung": ""},
        ),
        (
            (
                a_worker(number=5, queue=QueueObservation(consumers=1, ready=9, unacked=0), expired_lately=3),
                a_worker(number=6),
            ),
            {"worker backlog": "5"},
        ),
    ],
)
def test_a_diagnosis_says_which_workers_it_is_about(workers: Any, about: dict[str, str]) -> None:
    found = by_kind(workers=workers)

    assert {kind: found[kind].about for kind in about} == about


def test_while_the_brake_holds_the_number_of_executions_that_were_turned_down_is_unknown() -> None:
    """Their dead letters wait behind the brake, so that none would be counted."""
    none, brake = replace(DECLINED, declined=0), a_brake(tripped_at=ago(60), hold_until=ago(-540))
    found = by_kind(workers=(gone(1), gone(2)), requested=58, letters=none, brake=brake)["workers"]

    assert found.sentence.endswith(
        "58 wait; how many the scheduler turned down is unknown, because the brake pauses the intake"
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
    assert found.sentence.startswith(says)
    assert "republish_limit" in found.sentence
    assert "start workers" in (found.next_step or "")
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
    assert found.sentence.startswith(says)
    told = [found.sentence, *found.evidence]
    assert any("dlq_handler.monitor.republish_requests is false" in line for line in told)
