"""What is said of ourselves: by a sidecar that knows itself, and by one who looks from outside."""

from dataclasses import replace
from typing import Any

import pytest

from dlq_handler.diagnosis.check_replica import ASKS_AGAIN, RESTART, Lacks, Patience
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.diagnosis import REPAIR_FIRST, Diagnosis, Health
from dlq_handler.diagnosis.view import (
    OFF,
    BrokerFact,
    DatabaseFact,
    GateFact,
    LeaderFact,
    OwnConnections,
    OwnFact,
    QueueFact,
    Unknown,
    UnknownCause,
    View,
    outdated,
)
from dlq_handler.safety.gate import GateCause
from dlq_handler.topology.consumers import Consumers
from tests.support.views import INTAKE, a_brake, a_queue, a_view, ago

OK, PROBLEM, UNKNOWN = Health.OK, Health.PROBLEM, Health.UNKNOWN


def by_kind(view: View) -> dict[str, Diagnosis]:
    return {one.check: one for one in diagnose(view)}


def an_own(**link: Any) -> OwnFact:
    return OwnFact(opens_within_seconds=25, leads_within_seconds=30, connections=OwnConnections(**link))


def test_a_gate_that_its_own_replica_does_not_know_is_not_open() -> None:
    found = by_kind(
        a_view(gate=Unknown("it has not looked at the database yet", UnknownCause.REPLICA_UNSURE))
    )["safety gate"]

    assert found.health is UNKNOWN
    assert "has not looked" in found.explanation


def test_a_consuming_replica_knows_it_without_the_owners_of_consumers() -> None:
    untold = QueueFact(name=INTAKE, consumers=Consumers(count=2, ready=3, tags=None))

    seen = by_kind(a_view(intake=untold, own=an_own(is_consuming=True)))["replicas"]

    assert (seen.health, "3 dead letters wait" in seen.explanation) == (OK, True)
    assert by_kind(a_view(intake=untold, own=an_own()))["replicas"].health is UNKNOWN
    assert by_kind(a_view(intake=untold))["replicas"].health is UNKNOWN


@pytest.mark.parametrize("alarms", [(), Unknown("the management API does not answer")])
def test_a_blocked_connection_is_a_problem_whatever_the_management_api_says(alarms: Any) -> None:
    found = by_kind(a_view(alarms=alarms, own=an_own(is_blocked=True)))["broker alarm"]

    assert (found.health, found.component.value) == (PROBLEM, "broker")


def test_an_old_view_is_unknown_and_keeps_its_dates() -> None:
    old = a_view(canaries=OFF)

    found = diagnose(outdated(old, "the last look was 2 min ago"))

    assert {one.health for one in found} == {UNKNOWN}
    assert {one.explanation for one in found if one.check != "safety gate"} == {"the last look was 2 min ago"}
    assert (outdated(old, "x").at, outdated(old, "x").ttl_seconds) == (old.at, old.ttl_seconds)


POLICY = Patience(opens_within_seconds=25, leads_within_seconds=30)
NO_CONSUMER = a_queue(INTAKE, count=0, ready=3, tags=())
FREE = LeaderFact(is_held=False, until=ago(5))

LACKS: list[tuple[str, dict[str, Any], float]] = [
    ("replicas", {"intake": NO_CONSUMER}, POLICY.opens_within_seconds),
    ("replicas", {"intake": a_queue(INTAKE, tags=("executor",))}, POLICY.opens_within_seconds),
    ("replicas", {"intake": QueueFact(name=INTAKE, consumers=None)}, POLICY.opens_within_seconds),
    ("timeout monitor", {"leader": FREE}, POLICY.leads_within_seconds),
]


class Running:
    """A sidecar that looks, now and then."""

    def __init__(self) -> None:
        self.lacks = Lacks()

    def sees(self, at: float, **changed: Any) -> dict[str, Diagnosis]:
        view = a_view(**changed)
        self.lacks = self.lacks.after(view, at)
        return by_kind(replace(view, own=self.lacks.fact(at, POLICY)))


@pytest.mark.parametrize(("kind", "lack", "limit"), LACKS)
def test_what_a_sidecar_is_about_to_get_is_a_problem_only_when_it_does_not_come(
    kind: str, lack: dict[str, Any], limit: float
) -> None:
    running = Running()
    running.sees(0)

    # Stopped and continued: it was not there to look, and what it lacks it lacks since now.
    found = [running.sees(at, **lack)[kind] for at in (5000, 5000 + limit - 1, 5000 + limit)]

    assert [one.health for one in found] == [UNKNOWN, UNKNOWN, PROBLEM]
    assert all("his replica runs" in one.explanation for one in found)
    assert not any("Start `dlq-handler run`" in (one.action or "") for one in found)
    assert running.sees(6000)[kind].health is OK
    assert running.sees(6010, **lack)[kind].health is UNKNOWN, "counted anew"


@pytest.mark.parametrize(
    "explained",
    [
        {
            "database": DatabaseFact(is_unreachable=True, error="away"),
            "leader": Unknown("away"),
            "intake": NO_CONSUMER,
        },
        {"broker": BrokerFact(error="away"), "intake": Unknown("the broker does not answer")},
        {"brake": a_brake(tripped_at=ago(60), tripped_by="one", explanation="many"), "intake": NO_CONSUMER},
    ],
)
def test_what_a_server_or_the_brake_explains_counts_from_its_end(explained: dict[str, Any]) -> None:
    running = Running()
    for at in range(0, 1000, 10):
        running.sees(at, **explained)

    found = running.sees(1000, intake=NO_CONSUMER, leader=FREE)

    assert (found["replicas"].health, found["timeout monitor"].health) == (UNKNOWN, UNKNOWN)


UNANSWERED = Unknown("sidecar: no process listens at http://127.0.0.1:9464")
HANGS = Unknown(
    "the process at http://127.0.0.1:9464 does not answer within 2 s: it hangs", UnknownCause.REPLICA_HANGS
)


@pytest.mark.parametrize(("kind", "lack", "limit"), LACKS)
def test_one_who_is_no_sidecar_says_at_once_that_none_is_there(
    kind: str, lack: dict[str, Any], limit: float
) -> None:
    found = by_kind(a_view(**({"gate": UNANSWERED, "intake": NO_CONSUMER} | lack)))[kind]

    assert found.health is PROBLEM
    assert "Start `dlq-handler run`" in (found.action or "")


OURS, UNTOLD = a_queue(INTAKE, tags=("dlq-handler.one",)), Consumers(count=1, ready=0, tags=None)
LINKED, YOUNG = GateFact(causes=()), GateFact(causes=(GateCause.YOUNG_LINK,))
HAS_NOT_LOOKED = Unknown(
    "the sidecar answers: it has not looked at the database yet", UnknownCause.REPLICA_UNSURE
)


@pytest.mark.parametrize(
    ("ended_seconds_ago", "intake", "gate", "health"),
    [
        # A replica is there that takes it.
        (10, OURS, UNANSWERED, UNKNOWN),
        (59, OURS, LINKED, UNKNOWN),
        (10, NO_CONSUMER, LINKED, UNKNOWN),
        (10, NO_CONSUMER, HAS_NOT_LOOKED, UNKNOWN),
        # By now it should have been taken.
        (60, OURS, UNANSWERED, PROBLEM),
        (60, OURS, LINKED, PROBLEM),
        (None, OURS, LINKED, PROBLEM),
        (60, NO_CONSUMER, HAS_NOT_LOOKED, PROBLEM),
        # The outage was longer than that, and is just over; or it is the first start of all.
        (3600, OURS, YOUNG, UNKNOWN),
        (3600, NO_CONSUMER, YOUNG, UNKNOWN),
        (None, OURS, YOUNG, UNKNOWN),
        (3600, OURS, HAS_NOT_LOOKED, UNKNOWN),
        (3600, QueueFact(name=INTAKE, consumers=UNTOLD), HAS_NOT_LOOKED, UNKNOWN),
        # No replica is found.
        (10, NO_CONSUMER, UNANSWERED, PROBLEM),
        (10, a_queue(INTAKE, tags=("executor",)), UNANSWERED, PROBLEM),
        (10, QueueFact(name=INTAKE, consumers=UNTOLD), UNANSWERED, PROBLEM),
        (10, QueueFact(name=INTAKE, consumers=None), UNANSWERED, PROBLEM),
        (10, Unknown("the broker does not answer"), UNANSWERED, PROBLEM),
    ],
)
def test_from_outside_a_free_lease_is_a_problem_unless_a_sidecar_has_just_come_back(
    ended_seconds_ago: float | None, intake: Any, gate: Any, health: Health
) -> None:
    until = None if ended_seconds_ago is None else ago(ended_seconds_ago)
    free = LeaderFact(is_held=False, until=until)
    found = by_kind(a_view(leader=free, intake=intake, gate=gate))["timeout monitor"]

    assert found.health is health
    assert ("Start `dlq-handler run`" in (found.action or "")) is (health is PROBLEM)


@pytest.mark.parametrize(
    ("seen", "next_step"),
    [
        (
            {"gate": UNANSWERED, "intake": NO_CONSUMER},
            "Start `dlq-handler run`: only a running replica can report this.",
        ),
        (
            {"gate": UNANSWERED, "intake": a_queue(INTAKE, tags=("executor",))},
            "Start `dlq-handler run`: only a running replica can report this.",
        ),
        ({"gate": HANGS, "intake": NO_CONSUMER}, RESTART),
        ({"gate": HAS_NOT_LOOKED}, ASKS_AGAIN),
        # It has no way to look.
        (
            {"gate": HAS_NOT_LOOKED, "database": DatabaseFact(is_unreachable=True, error="away")},
            REPAIR_FIRST,
        ),
        # One runs, perhaps, and another check names what stops it.
        ({"gate": UNANSWERED, "intake": QueueFact(name=INTAKE, consumers=UNTOLD)}, REPAIR_FIRST),
        (
            {
                "gate": UNANSWERED,
                "intake": NO_CONSUMER,
                "database": DatabaseFact(is_unreachable=True, error="away"),
            },
            REPAIR_FIRST,
        ),
        ({"gate": UNANSWERED, "intake": Unknown("the broker does not answer")}, REPAIR_FIRST),
    ],
)
def test_an_unknown_gate_names_the_action(seen: dict[str, Any], next_step: str) -> None:
    found = by_kind(a_view(**seen))["safety gate"]

    assert (found.health, found.action) == (UNKNOWN, next_step)


def test_a_running_replica_is_paused_by_the_brake_also_without_a_leader() -> None:
    braked = {"brake": a_brake(tripped_at=ago(60), tripped_by="one", explanation="many"), "leader": FREE}

    found = Running().sees(
        0, intake=NO_CONSUMER, gate=Unknown("it has not looked yet", UnknownCause.REPLICA_UNSURE), **braked
    )["replicas"]

    assert found.explanation.startswith("Paused by the brake")


def test_a_replica_that_hangs_is_restarted_and_not_started_a_second_time() -> None:
    """A process that holds its port and does not answer is there: a second one would exit with 78."""
    free = LeaderFact(is_held=False, until=ago(3600))
    found = by_kind(a_view(gate=HANGS, intake=a_queue(INTAKE, count=0, ready=4, tags=()), leader=free))

    for kind in ("replicas", "timeout monitor"):
        assert (found[kind].health, found[kind].action) == (PROBLEM, RESTART)
        assert "does not answer within 2 s: it hangs" in found[kind].explanation
    assert found["replicas"].headline == "A replica of dlq-handler hangs"
    assert "4 dead letters wait" in found["replicas"].explanation
    absent = by_kind(a_view(gate=UNANSWERED, intake=NO_CONSUMER, leader=free))
    assert "Start `dlq-handler run`" in (absent["replicas"].action or "")
