"""`doctor` gives the answers of `status`, and those of its own checks beside them."""

from dataclasses import replace
from typing import Any

import pytest

from dlq_handler.diagnosis.check_replica import RESTART
from dlq_handler.diagnosis.checks import INFOS, Check
from dlq_handler.diagnosis.diagnose import diagnose, diagnose_for_doctor
from dlq_handler.diagnosis.diagnosis import Diagnosis, Health
from dlq_handler.diagnosis.doctor_facts import ClockFact, DoctorFacts
from dlq_handler.diagnosis.view import (
    NOT_OBSERVED,
    OFF,
    WITHOUT_BROKER,
    Unknown,
    UnknownCause,
    View,
)
from dlq_handler.topology.canary_run import CanaryRunReport, RunConclusion
from tests.support.views import INTAKE, a_queue, a_view, a_worker

OK, PROBLEM, UNKNOWN = Health.OK, Health.PROBLEM, Health.UNKNOWN
OF_DOCTOR = {check for check in Check if INFOS[check].anchor is None}
IN_TIME = ClockFact(ahead_seconds=0.2, error_seconds=0.0)


def facts(**changed: Any) -> DoctorFacts:
    """Every check is ok by default."""
    usual: dict[str, Any] = {
        "host_schema": "attune",
        "missing_of_host": (),
        "missing_broker_rights": (),
        "clock": IN_TIME,
        "broker_clock": IN_TIME,
        "restarts": None,
        "run_limit_seconds": 3600,
    }
    return DoctorFacts(**(usual | changed))


def examined(view: View | None = None, **changed: Any) -> dict[Check, Diagnosis]:
    return {one.check: one for one in diagnose_for_doctor(view or a_view(), facts(**changed))}


def a_report(conclusion: RunConclusion) -> CanaryRunReport:
    return CanaryRunReport(
        conclusion=conclusion,
        problem=None,
        explanation="so it went",
        action=None,
        queue=INTAKE,
        sent_at=None,
        ttl_seconds=None,
        limit_seconds=2,
    )


def test_every_check_is_made_once_and_each_of_the_view_with_the_same_answer() -> None:
    view = a_view(workers=(a_worker(silent_seconds=1920, queue=None),))
    found = diagnose_for_doctor(view, facts())

    assert sorted(one.check for one in found) == sorted(Check)
    assert {one for one in found if one.check not in OF_DOCTOR} == set(diagnose(view))
    assert [one.health for one in found] == sorted((one.health for one in found), key=list(Health).index)


def test_a_healthy_world_is_ok_and_unknown_facts_are_unknown() -> None:
    assert {one.health for one in examined().values()} == {OK}
    asked = dict.fromkeys(
        ("missing_of_host", "missing_broker_rights", "clock", "broker_clock", "restarts"), NOT_OBSERVED
    )
    unknown = examined(a_view(workers=NOT_OBSERVED), **asked)
    assert {unknown[check].health for check in OF_DOCTOR - {Check.SETTINGS}} == {UNKNOWN}


@pytest.mark.parametrize(
    ("check", "changed", "health"),
    [
        (Check.HOST_TABLES, {"missing_of_host": ["table worker"]}, PROBLEM),
        (Check.BROKER_RIGHTS, {"missing_broker_rights": ["read on queue 'q'"]}, PROBLEM),
        (Check.CLOCK, {"clock": ClockFact(ahead_seconds=-5.4, error_seconds=0.5)}, OK),
        (Check.CLOCK, {"clock": ClockFact(ahead_seconds=-6.0, error_seconds=0.5)}, PROBLEM),
        (Check.BROKER_CLOCK, {"broker_clock": ClockFact(ahead_seconds=3600, error_seconds=1)}, PROBLEM),
        (Check.WORKER_RESTARTS, {"restarts": "it refuses this user"}, UNKNOWN),
        (Check.WORKER_RESTARTS, {"reconnects": True}, OK),
        (Check.CANARY, {"canary": a_report(RunConclusion.ARRIVED)}, OK),
        (Check.CANARY, {"canary": a_report(RunConclusion.NOT_ARRIVED)}, PROBLEM),
        (Check.CANARY, {"canary": a_report(RunConclusion.UNKNOWN)}, UNKNOWN),
    ],
)
def test_each_fact_decides_its_own_check(check: Check, changed: dict[str, Any], health: Health) -> None:
    found = examined(**changed)

    assert found[check].health is health
    assert (found[check].action is None) is (health is OK)
    assert {one.health for one in found.values() if one.check is not check} == {OK}


@pytest.mark.parametrize(("age", "health"), [(-5.0, OK), (-6.0, PROBLEM)])
def test_heartbeats_in_the_future_are_a_problem(age: float, health: Health) -> None:
    assert examined(a_view(workers=(a_worker(silent_seconds=age),)))[Check.WORKER_CLOCKS].health is health


def test_settings_that_surprise_are_no_problem() -> None:
    found = examined(warnings=["raised to 330 s"])[Check.SETTINGS]
    assert (found.health, found.evidence) == (OK, ("raised to 330 s",))


def test_a_canary_run_that_was_not_wanted_leaves_the_answer_of_the_replicas() -> None:
    view = a_view(canaries=WITHOUT_BROKER)
    assert examined(view, canary=OFF)[Check.CANARY].unknown_cause is UnknownCause.BROKER_UNAVAILABLE


def test_a_replica_that_hangs_is_to_be_restarted() -> None:
    gate = Unknown("the process does not answer: it hangs", UnknownCause.REPLICA_HANGS)
    view = a_view(intake=a_queue(INTAKE, count=0, ready=6, tags=()), gate=gate)

    assert examined(view)[Check.REPLICAS].action == RESTART


def test_shadow_mode_is_no_problem_of_the_doctor() -> None:
    assert Check.SHADOW_MODE not in examined(replace(a_view(), is_shadow=True))


def test_settings_in_shadow_mode_beside_a_live_replica_are_named() -> None:
    """Else the doctor reports routes of shadow mode as broken, and the recovery is in order."""
    found = examined(a_view(is_shadow=True, live_replica="one"))[Check.SHADOW_MODE]

    assert found.health is PROBLEM
    assert "replica 'one' runs in live mode" in found.explanation
