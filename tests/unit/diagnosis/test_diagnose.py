"""Every diagnosis as a table: its fact makes it a problem, without it it is ok, and unknown is never ok."""

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.diagnosis.checks import OF_EVERY_VIEW, Component
from dlq_handler.diagnosis.collector_database import DatabaseFacts
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.diagnosis import REPAIR_FIRST, Diagnosis, Health, conclusion_of
from dlq_handler.diagnosis.view import (
    OFF,
    AttuneMonitorFact,
    BrokerFact,
    DatabaseFact,
    GateFact,
    LeaderFact,
    LettersFact,
    OrphansFact,
    OutboxFact,
    QueueFact,
    RightsFact,
    TablesFact,
    TopologyFact,
    Unknown,
    UnknownCause,
    View,
    without_database,
)
from dlq_handler.host.worker import QueueObservation, Worker
from dlq_handler.lifecycle.flow import FlowKind, FlowStatus, StopStep
from dlq_handler.lifecycle.flow_summary import FlowNote, FlowsFact
from dlq_handler.safety.gate import GateCause
from dlq_handler.topology.canary import CanaryState
from dlq_handler.topology.check import check
from dlq_handler.topology.system_queues import SystemQueues
from dlq_handler.workers.availability import standing_of
from dlq_handler.workers.service_observation import ServiceObservation
from tests.support.topologies import a_stock_world, expectation
from tests.support.views import (
    INTAKE,
    NOW,
    POLICY,
    TTL_SECONDS,
    a_brake,
    a_canary,
    a_queue,
    a_view,
    a_worker,
    ago,
    facts,
)

OK, PROBLEM, UNKNOWN = Health.OK, Health.PROBLEM, Health.UNKNOWN

# The fact that each kind is decided by.
FACT: dict[str, str] = {
    "database": "database",
    "own tables": "tables",
    "database rights": "rights",
    "broker": "broker",
    "broker alarm": "alarms",
    "topology": "topology",
    "canary": "canaries",
    "other consumers": "intake",
    "system queues": "system_queues",
    "completions": "completions",
    "requests": "requests",
    "replicas": "intake",
    "safety gate": "gate",
    "brake": "brake",
    "shadow mode": "is_shadow",
    "timeout monitor": "leader",
    "publishing": "outbox",
    "services": "workers",
    "workers": "workers",
    "worker unavailable": "workers",
    "worker hung": "workers",
    "worker queue": "workers",
    "worker backlog": "workers",
    "unusable letters": "letters",
    "attune monitor": "attune_monitor",
    "flows": "flows",
    "leaked queues": "flows",
    "returned workers": "flows",
    "orphaned queues": "orphans",
}


def by_kind(view: View) -> dict[str, Diagnosis]:
    found = diagnose(view)
    assert len({one.check for one in found}) == len(found), "one of each kind"
    return {one.check: one for one in found}


def test_a_world_in_which_all_is_well_is_ok_in_every_kind() -> None:
    found = by_kind(a_view())

    assert {one.health for one in found.values()} == {OK}, found
    assert found.keys() == FACT.keys() == set(OF_EVERY_VIEW)
    assert conclusion_of(found.values()) is OK
    assert all(one.action is None and one.since is None for one in found.values())


GONE = a_worker(silent_seconds=1920, ended_last_hour=611, queue=QueueObservation(consumers=0, ready=3))
# Of one that has been silent for ten minutes.
GOODBYE: dict[str, Any] = {"status": "inactive", "updated": ago(595)}
BROKEN_ROUTE = TopologyFact(checked=check(a_stock_world(), expectation()))

WAITS = "step idle has waited more than 1 min for 1 consumer(s) of worker.7.executions"
RETURNED = "the stop was aborted: worker 7 has returned"


def a_note(**fields: Any) -> FlowNote:
    """A stop that goes on."""
    given: dict[str, Any] = {
        "id": "w7",
        "kind": FlowKind.FLOW,
        "status": FlowStatus.STOPPING,
        "step": StopStep.IDLE,
        "worker_id": 7,
        "step_since": ago(90),
        "last_error": None,
    }
    return FlowNote(**given | fields)


def some_flows(*notes: FlowNote, is_enabled: bool = True, leaked: int = 0) -> FlowsFact:
    return FlowsFact(
        is_enabled=is_enabled, counts={FlowStatus.STOPPING: len(notes)}, notes=notes, leaked=leaked
    )


def a_returned(**fields: Any) -> FlowNote:
    return a_note(status=FlowStatus.ACTIVE, step=None, last_error=RETURNED, aborted_at=ago(30), **fields)


PROBLEMS: list[tuple[str, Component, dict[str, Any]]] = [
    ("flows", Component.DLQ_HANDLER, {"flows": some_flows(a_note(last_error=WAITS))}),
    ("flows", Component.DLQ_HANDLER, {"flows": some_flows(a_note(), is_enabled=False)}),
    (
        "leaked queues",
        Component.BROKER,
        {
            "flows": some_flows(
                a_note(status=FlowStatus.STOPPED, step=StopStep.STOPPED, leaked=("worker.7.packs",)), leaked=1
            )
        },
    ),
    (
        "returned workers",
        Component.WORKERS,
        {
            "flows": some_flows(a_returned()),
            "workers": (a_worker(queue=QueueObservation(consumers=0, ready=0)), a_worker(number=8)),
        },
    ),
    (
        "database",
        Component.DATABASE,
        {"database": DatabaseFact(is_unreachable=True, error="connection refused")},
    ),
    ("database", Component.DATABASE, {"database": DatabaseFact(answer_seconds=4.2)}),
    ("database", Component.DATABASE, {"database": DatabaseFact(is_in_recovery=True)}),
    (
        "own tables",
        Component.DATABASE,
        {"tables": TablesFact(version="0001", schema="dlq_handler", problem="too old")},
    ),
    ("database rights", Component.DATABASE, {"rights": RightsFact(missing=["UPDATE"], role="me")}),
    ("broker", Component.BROKER, {"broker": BrokerFact(error="connection refused")}),
    ("broker alarm", Component.BROKER, {"alarms": ["memory alarm on rabbit@one"]}),
    ("topology", Component.BROKER, {"topology": BROKEN_ROUTE}),
    ("canary", Component.BROKER, {"canaries": [a_canary(CanaryState.LOST)]}),
    (
        "other consumers",
        Component.BROKER,
        {"intake": a_queue(INTAKE, count=2, tags=("dlq-handler.one", "executor"))},
    ),
    ("replicas", Component.DLQ_HANDLER, {"intake": a_queue(INTAKE, count=0, ready=41, tags=())}),
    ("replicas", Component.DLQ_HANDLER, {"intake": QueueFact(name=INTAKE, consumers=None)}),
    (
        "safety gate",
        Component.DLQ_HANDLER,
        {"gate": GateFact(causes=[GateCause.UNKNOWN_EXECUTIONS], explanation="40 of the last 50")},
    ),
    ("safety gate", Component.DLQ_HANDLER, {"gate": GateFact(causes=[GateCause.CLOCK_JUMP])}),
    (
        "brake",
        Component.DLQ_HANDLER,
        {"brake": a_brake(tripped_at=ago(60), tripped_by="one", explanation="600 executions ended in 60 s")},
    ),
    (
        "brake",
        Component.DLQ_HANDLER,
        {"brake": a_brake(tripped_at=ago(900), hold_until=ago(300), tripped_by="one", explanation="many")},
    ),
    (
        "attune monitor",
        Component.EXECUTOR,
        {"attune_monitor": AttuneMonitorFact(is_enabled=False, span_seconds=3600, ended=3, first_at=ago(60))},
    ),
    ("shadow mode", Component.DLQ_HANDLER, {"is_shadow": True}),
    ("timeout monitor", Component.DLQ_HANDLER, {"leader": LeaderFact(is_held=False, until=ago(90))}),
    (
        "publishing",
        Component.DLQ_HANDLER,
        {"outbox": OutboxFact(pending=31, oldest_seconds=400, last_error="unroutable")},
    ),
    (
        "services",
        Component.WORKERS,
        {
            "workers": (
                a_worker(
                    queue=QueueObservation(consumers=0, ready=0),
                    observation=ServiceObservation(
                        queue="worker.7.executions", unconsumed_since=ago(60), first_heartbeat=ago(35)
                    ),
                ),
            )
        },
    ),
    ("workers", Component.WORKERS, {"workers": ()}),
    ("workers", Component.WORKERS, {"workers": (a_worker(silent_seconds=90000),)}),
    ("worker unavailable", Component.WORKERS, {"workers": (GONE, a_worker(number=8))}),
    (
        "worker hung",
        Component.WORKERS,
        {
            "workers": (
                a_worker(silent_seconds=600, queue=QueueObservation(consumers=1, ready=0, unacked=5)),
                a_worker(number=8),
            )
        },
    ),
    (
        "worker hung",
        Component.WORKERS,
        {
            "workers": (
                a_worker(
                    scheduled=5,
                    oldest_scheduled_seconds=TTL_SECONDS + 1,
                    queue=QueueObservation(consumers=1, ready=0, unacked=5),
                ),
            )
        },
    ),
    (
        "worker queue",
        Component.WORKERS,
        {"workers": (a_worker(queue=QueueObservation(consumers=0, ready=12)),)},
    ),
    ("worker queue", Component.WORKERS, {"workers": (a_worker(queue=None, scheduled=3),)}),
    (
        "worker queue",
        Component.WORKERS,
        {
            "workers": [
                a_worker(number=number, queue=QueueObservation(consumers=0, ready=1)) for number in (7, 8)
            ]
        },
    ),
    (
        "worker backlog",
        Component.WORKERS,
        {
            "workers": (
                a_worker(
                    scheduled=40,
                    oldest_scheduled_seconds=280,
                    queue=QueueObservation(consumers=1, ready=40, ttl_ms=300000),
                ),
            )
        },
    ),
    (
        "worker backlog",
        Component.WORKERS,
        {"workers": (a_worker(expired_lately=3, queue=QueueObservation(consumers=1, ready=1)),)},
    ),
    (
        "unusable letters",
        Component.SENDERS,
        {"letters": LettersFact(span_seconds=900, unreadable=12, unrelated=3, before=2, first_at=ago(700))},
    ),
    (
        "system queues",
        Component.EXECUTOR,
        {"system_queues": SystemQueues(missing=("attune.enforcements.queue",))},
    ),
    ("completions", Component.EXECUTOR, {"completions": a_queue("done", count=0, ready=9)}),
    ("requests", Component.EXECUTOR, {"requests": a_queue("asked", count=0, ready=9)}),
]


@pytest.mark.parametrize(("kind", "component", "changed"), PROBLEMS)
def test_a_fact_turns_its_diagnosis_on_and_no_other(
    kind: str, component: Component, changed: dict[str, Any]
) -> None:
    found = diagnose(a_view(**changed))

    first = found[0]
    assert (first.check, first.component, first.health) == (kind, component, PROBLEM), "the worst first"
    assert first.action
    assert first.command
    assert {one.check for one in found if one.health is PROBLEM} == {kind}


def test_the_table_has_a_problem_of_every_kind() -> None:
    # Orphaned queues harm no execution: the check only recommends.
    assert {kind for kind, *_ in PROBLEMS} == FACT.keys() - {"orphaned queues"}


@pytest.mark.parametrize("kind", FACT)
def test_an_unknown_fact_makes_the_check_unknown_with_the_reason(kind: str) -> None:
    changed: dict[str, Any] = {FACT[kind]: Unknown("the server sleeps")}
    if kind == "safety gate":
        changed["intake"] = a_queue(INTAKE, count=0, tags=())
    found = by_kind(a_view(**changed))[kind]

    assert found.health is UNKNOWN
    assert found.explanation == "the server sleeps"
    assert found.action


def test_an_unreachable_broker_is_the_only_repair_that_is_named() -> None:
    away = by_kind(a_view(broker=BrokerFact(error="connection refused"), alarms=Unknown("no answer")))
    there = by_kind(a_view(alarms=Unknown("no answer")))

    assert away["broker alarm"].action == REPAIR_FIRST
    assert "management API" in (there["broker alarm"].action or "")


def test_a_sidecar_that_consumes_has_a_gate_that_lets_letters_pass() -> None:
    consuming = by_kind(a_view(gate=Unknown("elsewhere")))["safety gate"]
    unseen = by_kind(a_view(gate=Unknown("elsewhere"), intake=a_queue(INTAKE, tags=("executor",))))[
        "safety gate"
    ]

    assert (consuming.health, consuming.evidence) == (OK, ("elsewhere",))
    assert unseen.health is UNKNOWN


def test_a_gate_that_waits_after_a_start_is_no_problem() -> None:
    assert by_kind(a_view(gate=GateFact(causes=[GateCause.YOUNG_LINK])))["safety gate"].health is OK


def test_a_tripped_brake_names_the_waiting_letters_and_its_evidence() -> None:
    tripped = a_brake(
        tripped_at=ago(60), hold_until=ago(-60), tripped_by="one", explanation="600 ended in 60 s"
    )
    found = by_kind(a_view(brake=tripped, intake=a_queue(INTAKE, count=0, ready=41, tags=())))["brake"]
    blind = by_kind(a_view(brake=tripped, intake=Unknown("the broker is away")))["brake"]

    assert "41 dead letters wait" in found.explanation
    assert found.evidence == (
        "600 ended in 60 s",
        "tripped by one, until 2026-03-01 03:01:00Z or `dlq-handler brake release`",
        "12 executions were ended in the last 60 s",
    )
    assert "the number of waiting dead letters is unknown" in blind.explanation


@pytest.mark.parametrize(
    ("kind", "changed", "since"),
    [
        (
            "worker unavailable",
            {"workers": (GONE,)},
            ago(1620),
        ),  # it counts as gone 300 s after its last heartbeat
        (
            "worker hung",
            {
                "workers": (
                    a_worker(silent_seconds=600, queue=QueueObservation(consumers=1, ready=0, unacked=5)),
                )
            },
            ago(300),
        ),
        (
            "worker hung",
            {
                "workers": (
                    a_worker(
                        scheduled=1,
                        oldest_scheduled_seconds=4000,
                        queue=QueueObservation(consumers=1, ready=0, unacked=1),
                    ),
                )
            },
            ago(4000),  # it reports: its heartbeat is of now, and what it does not start is old
        ),
        (
            "worker backlog",
            {
                "workers": (
                    a_worker(
                        scheduled=9,
                        oldest_scheduled_seconds=280,
                        queue=QueueObservation(consumers=1, ready=9),
                    ),
                )
            },
            ago(280),
        ),
        # Expired messages show that it is slow; without waiting ones, since when is unknown.
        (
            "worker backlog",
            {"workers": (a_worker(expired_lately=3, queue=QueueObservation(consumers=1, ready=1)),)},
            None,
        ),
        ("brake", {"brake": a_brake(tripped_at=ago(60), tripped_by="one", explanation="many")}, ago(60)),
        ("timeout monitor", {"leader": LeaderFact(is_held=False, until=ago(90))}, ago(90)),
        ("publishing", {"outbox": OutboxFact(pending=1, oldest_seconds=400)}, ago(400)),
        ("database", {"database": DatabaseFact(is_unreachable=True, error="away", since=ago(40))}, ago(40)),
        (
            "replicas",
            {"intake": a_queue(INTAKE, count=0), "leader": LeaderFact(is_held=False, until=ago(90))},
            ago(90),
        ),
        (
            "unusable letters",
            {
                "letters": LettersFact(
                    span_seconds=900, unreadable=1, unrelated=0, before=0, first_at=ago(700)
                )
            },
            ago(700),
        ),
    ],
)
def test_since_is_the_start_of_the_problem(kind: str, changed: dict[str, Any], since: object) -> None:
    assert by_kind(a_view(**changed))[kind].since == since


@pytest.mark.parametrize(
    ("worker", "is_gone"),
    [
        (a_worker(silent_seconds=600, queue=None), True),
        (a_worker(silent_seconds=600, queue=Unknown("the broker is away")), True),
        # Killed, and marked inactive by the host when the heartbeat was old.
        (a_worker(silent_seconds=600, queue=None, status="inactive", updated=ago(500)), True),
        (a_worker(silent_seconds=600, queue=QueueObservation(consumers=0, ready=0), status="inactive"), True),
        (a_worker(silent_seconds=90_000, queue=None, status="inactive", updated=ago(89_900)), False),
        (a_worker(silent_seconds=600, queue=None, **GOODBYE), False),
        (a_worker(silent_seconds=600, queue=None, **GOODBYE, scheduled=1), True),
        (a_worker(silent_seconds=600, queue=None, **GOODBYE, ended_last_hour=2), True),
        (a_worker(silent_seconds=600, queue=None, **GOODBYE, ended_last_hour=None), True),
        (a_worker(silent_seconds=600, queue=None, is_cordoned=True), False),
        (a_worker(silent_seconds=90_000, queue=None), False),
        (a_worker(silent_seconds=200), False),
    ],
)
def test_a_worker_without_heartbeat_and_consumer_is_unavailable(worker: Any, is_gone: bool) -> None:
    others = (a_worker(number=8), a_worker(number=9))
    found = by_kind(a_view(workers=(worker, *others)))["worker unavailable"]

    assert (found.health is PROBLEM) is is_gone


def test_requests_that_the_executor_rejected_are_counted_and_are_no_problem_of_the_senders() -> None:
    letters = LettersFact(span_seconds=900, unreadable=0, unrelated=0, before=0, declined=4)
    found = by_kind(a_view(letters=letters))["unusable letters"]

    assert found.health is OK
    assert found.evidence == (
        "the scheduler also rejected the requests of 4 execution(s): it had no worker for them",
    )


def test_without_any_worker_all_are_missed_also_those_that_stopped_cleanly() -> None:
    silent = tuple(
        a_worker(number=number, silent_seconds=600 + number, queue=None, **GOODBYE) for number in range(12)
    )
    found = by_kind(a_view(workers=silent))["worker unavailable"]

    assert found.health is PROBLEM
    assert found.headline == "12 workers are unavailable"
    assert found.evidence[-1] == "and 2 more"


@pytest.mark.parametrize(
    ("worker", "is_problem"),
    [
        (a_worker(silent_seconds=31, queue=QueueObservation(consumers=0, ready=1)), True),
        (a_worker(silent_seconds=31, queue=QueueObservation(consumers=0, ready=0)), False),
        # Its heartbeat is overdue: it may be dead, so the missing consumer is no problem of its own.
        (a_worker(silent_seconds=50, queue=QueueObservation(consumers=0, ready=1)), False),
        (a_worker(silent_seconds=50, queue=None), False),
        (
            a_worker(
                silent_seconds=31,
                queue=QueueObservation(consumers=0, ready=1),
                status="inactive",
                updated=ago(20),
            ),
            False,
        ),
    ],
)
def test_a_queue_without_consumer_is_a_problem_only_while_its_worker_reports(
    worker: Any, is_problem: bool
) -> None:
    found = by_kind(a_view(workers=(worker, a_worker(number=8))))["worker queue"]

    assert (found.health is PROBLEM) is is_problem


def test_heartbeats_that_were_not_observed_for_long_enough_are_no_evidence() -> None:
    unsure = a_worker(silent_seconds=600, watched_seconds=10, queue=None)
    found = by_kind(a_view(workers=(unsure, a_worker(number=8))))["worker unavailable"]

    assert found.health is UNKNOWN
    assert found.unknown_cause is UnknownCause.TAKES_TIME


def test_one_that_never_reported_is_not_waited_for() -> None:
    worker = Worker(id=9, heartbeat_age_seconds=None)
    standing = standing_of(worker, watched_seconds=10, policy=POLICY)
    unsure = a_worker(silent_seconds=600, watched_seconds=10, queue=None)
    silent = replace(
        unsure, registered=replace(unsure.registered, worker=worker, scheduled=1), standing=standing
    )
    found = by_kind(a_view(workers=(unsure, silent, a_worker(number=8))))["worker unavailable"]

    assert (found.health, "it never sent a heartbeat" in found.explanation) == (UNKNOWN, True)
    assert found.action == REPAIR_FIRST


def test_a_worker_whose_queue_cannot_be_seen_hides_no_other_one() -> None:
    blind = a_worker(queue=Unknown("not allowed"))
    alone = by_kind(a_view(workers=(blind,)))
    beside = by_kind(a_view(workers=(blind, a_worker(number=8, queue=None))))

    for kind in ("worker hung", "worker queue", "worker backlog"):
        assert alone[kind].health is UNKNOWN
        assert "not allowed" in alone[kind].explanation
    assert beside["worker queue"].health is PROBLEM


def test_a_stop_that_waits_names_the_flow_and_what_it_waits_for() -> None:
    found = by_kind(a_view(flows=some_flows(a_note(last_error=WAITS))))["flows"]

    assert (found.headline, found.since) == ("The stop of flow 'w7' waits", ago(90))
    assert found.explanation == f"The stop of flow 'w7' waits: {WAITS}."
    assert by_kind(a_view(flows=some_flows(a_note())))["flows"].health is OK, "it has just begun"


@pytest.mark.parametrize(
    ("worker", "health"),
    [
        (a_worker(queue=QueueObservation(consumers=0, ready=0)), PROBLEM),
        (a_worker(queue=None), PROBLEM),
        (a_worker(), OK),
        (a_worker(queue=Unknown("the broker sleeps")), UNKNOWN),
        (a_worker(silent_seconds=9000, queue=None), OK),
    ],
)
def test_a_worker_that_returned_without_a_consumer_is_to_be_restarted(worker: Any, health: Health) -> None:
    found = by_kind(a_view(flows=some_flows(a_returned()), workers=(worker,)))["returned workers"]

    assert found.health is health
    if health is PROBLEM:
        assert (found.action, found.since, found.evidence) == ("Restart worker 7.", ago(30), (RETURNED,))


def test_orphaned_queues_are_a_recommendation() -> None:
    found = by_kind(a_view(orphans=OrphansFact(queues=6, workers=2, ready=40)))["orphaned queues"]

    assert (found.health, found.command) == (OK, "dlq-handler queues orphans")
    assert found.explanation.startswith("6 queue(s) of 2 workers that are gone hold 40 message(s).")
    assert "queues retire --all --yes" in (found.action or "")


def test_without_flows_and_with_the_feature_off_nothing_is_checked() -> None:
    found = by_kind(a_view(flows=FlowsFact(is_enabled=False), orphans=OFF))

    assert FACT.keys() - found.keys() == {"flows", "leaked queues", "returned workers", "orphaned queues"}


def test_what_is_switched_off_is_left_out() -> None:
    found = by_kind(a_view(intake=OFF, canaries=OFF, leader=OFF))

    assert FACT.keys() - found.keys() == {
        "replicas",
        "other consumers",
        "canary",
        "timeout monitor",
        "attune monitor",
    }
    assert conclusion_of(found.values()) is OK


def test_attunes_monitor_may_run_while_ours_changes_nothing() -> None:
    ends = AttuneMonitorFact(is_enabled=False, span_seconds=3600, ended=3, first_at=ago(60))
    assert "attune monitor" not in by_kind(a_view(attune_monitor=ends, is_shadow=True))
    assert "attune monitor" not in by_kind(a_view(attune_monitor=ends, leader=OFF))


def test_causes_come_before_what_they_cause() -> None:
    found = diagnose(
        a_view(
            workers=(GONE,),
            is_shadow=True,
            database=DatabaseFact(answer_seconds=9),
            brake=a_brake(tripped_at=ago(60), tripped_by="one", explanation="many"),
            outbox=Unknown("no"),
        )
    )

    checks = [one.check for one in found]
    assert checks[:6] == ["database", "brake", "workers", "worker unavailable", "shadow mode", "publishing"]


PAUSES: list[tuple[str, dict[str, Any]]] = [
    (
        "database",
        {
            "database": DatabaseFact(is_unreachable=True, error="connection refused"),
            "leader": Unknown("away"),
        },
    ),
    ("safety gate", {"gate": GateFact(causes=[GateCause.UNKNOWN_EXECUTIONS])}),
    # A standby takes no lease.
    (
        "safety gate",
        {"gate": GateFact(causes=[GateCause.RECOVERY]), "leader": LeaderFact(is_held=False)},
    ),
    ("brake", {"brake": a_brake(tripped_at=ago(60), tripped_by="one", explanation="many")}),
    ("brake", {"brake": a_brake(tripped_at=ago(60), tripped_by="one", explanation="many"), "leader": OFF}),
]
NO_CONSUMER = a_queue(INTAKE, count=0, ready=41, tags=())


@pytest.mark.parametrize(("cause", "changed"), PAUSES)
def test_the_cause_that_pauses_all_replicas_comes_first_and_no_start_is_advised(
    cause: str, changed: dict[str, Any]
) -> None:
    found = diagnose(a_view(intake=NO_CONSUMER, **changed))
    replicas = by_kind(a_view(intake=NO_CONSUMER, **changed))["replicas"]

    assert found[0].check == cause
    assert replicas.health is PROBLEM, "letters wait"
    assert replicas.explanation.startswith(f"Paused by the {cause}: no replica consumes")
    assert "Start" not in (replicas.action or "")


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {
            "brake": a_brake(tripped_at=ago(60), tripped_by="one", explanation="many"),
            "gate": Unknown("no sidecar answers"),
            "leader": LeaderFact(is_held=False),
        },
        {"gate": GateFact(causes=[GateCause.CLOCK_JUMP])},
    ],
)
def test_a_sidecar_that_is_not_there_or_has_no_cause_to_pause_is_to_be_started(
    changed: dict[str, Any],
) -> None:
    replicas = by_kind(a_view(intake=NO_CONSUMER, **changed))["replicas"]

    assert replicas.explanation.startswith("No replica consumes")
    assert "Start `dlq-handler run`" in (replicas.action or "")


def test_no_check_without_an_observation_is_ok() -> None:
    found = diagnose(View(at=NOW, ttl_seconds=TTL_SECONDS))

    assert {one.health for one in found} == {UNKNOWN}
    assert len(found) == len(FACT)
    assert conclusion_of(found) is UNKNOWN
    assert conclusion_of(()) is UNKNOWN


@given(st.sets(st.sampled_from(sorted(set(FACT.values())))))
def test_no_view_is_ok_in_what_it_does_not_know(unknown: set[str]) -> None:
    changed: dict[str, Any] = dict.fromkeys(unknown, Unknown("no answer"))
    found = diagnose(a_view(**changed))

    for one in found:
        is_concluded = one.check == "safety gate" and "intake" not in unknown
        if FACT[one.check] in unknown and not is_concluded:
            assert one.health is UNKNOWN, one
    is_whole = unknown <= {"gate"} and "intake" not in unknown
    assert (conclusion_of(found) is OK) is is_whole


def test_the_support_knows_every_fact_of_a_view() -> None:
    # No kind depends on the observations alone: they add since when, and how often.
    assert set(facts()) == {*FACT.values(), "service_observations"}


def test_the_subject_names_component_and_check_once() -> None:
    found = by_kind(a_view())
    assert (found["database"].subject, found["brake"].subject) == ("database", "dlq-handler: brake")


@pytest.mark.parametrize(("is_enabled", "recommends"), [(True, True), (False, False)])
def test_both_timeout_monitors_that_are_on_give_a_recommendation_and_no_problem(
    is_enabled: bool, recommends: bool
) -> None:
    found = by_kind(a_view(attune_monitor=AttuneMonitorFact(is_enabled=is_enabled, span_seconds=3600)))

    assert found["attune monitor"].health is OK
    assert (found["attune monitor"].action is not None) is recommends


def test_without_the_broker_no_completion_event_is_called_published() -> None:
    found = by_kind(a_view(broker=BrokerFact(error="connection refused")))["publishing"]

    assert (found.health, found.unknown_cause) == (UNKNOWN, UnknownCause.BROKER_UNAVAILABLE)


def test_an_outage_of_the_database_forgets_every_fact_that_was_read_from_it() -> None:
    seen = without_database(a_view(), error="no answer", is_unreachable=True, since=NOW)
    read_from_it = {field.name for field in fields(DatabaseFacts)} & {field.name for field in fields(View)}
    kept = [
        name for name in read_from_it - {"at", "database"} if not isinstance(getattr(seen, name), Unknown)
    ]
    assert kept == []
