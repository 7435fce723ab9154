"""What the doctor says of each fact: one table for each line."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from dlq_handler.diagnosis import doctor_broker_lines, doctor_database_lines, doctor_lines
from dlq_handler.diagnosis.observation import Component, Health, Looked, Observation, conclude, worst_first
from dlq_handler.diagnosis.view import TablesSeen
from dlq_handler.topology.check import check
from dlq_handler.topology.consumers import Consumers
from dlq_handler.topology.decide_canary import CanaryState, WorkerCanary
from tests.support.topologies import a_stock_world, bound, dispatch_key, expectation

OK, PROBLEM, UNKNOWN = Health.OK, Health.PROBLEM, Health.UNKNOWN
QUEUE = "attune.dlx.queue"


def says(seen: Observation, health: Health, words: str) -> None:
    assert seen.health is health
    assert words in seen.what
    assert (seen.fix is None) is (health is OK), "whoever reads that something is wrong reads what to do"


@pytest.mark.parametrize(
    ("trouble", "is_in_recovery", "health", "words"),
    [
        (None, False, OK, "answers"),
        (None, True, PROBLEM, "is a standby"),
        ("nobody listens there", False, PROBLEM, "nobody listens there"),
    ],
)
def test_database(trouble: str | None, is_in_recovery: bool, health: Health, words: str) -> None:
    says(doctor_database_lines.database(trouble, is_in_recovery=is_in_recovery), health, words)


@pytest.mark.parametrize(
    ("missing", "health", "words"),
    [
        ([], OK, "in schema 'attune'"),
        (["table worker", "column execution.updated"], PROBLEM, "'table worker', 'column execution.updated'"),
    ],
)
def test_host_tables(missing: list[str], health: Health, words: str) -> None:
    says(doctor_database_lines.host_tables(missing, schema="attune"), health, words)


def test_own_tables() -> None:
    usable = TablesSeen(version="0004", schema="dlq_handler", note="newer")
    says(doctor_database_lines.own_tables(usable), OK, "at version 0004")
    assert doctor_database_lines.own_tables(usable).notes == ("newer",)
    unfit = doctor_database_lines.own_tables(replace(usable, version=None, problem="Run migrate."))
    says(unfit, PROBLEM, "at version none")
    assert unfit.fix == "Run migrate."


@pytest.mark.parametrize(
    ("missing", "health", "words"),
    [
        ([], OK, "'sidecar' may do all"),
        (["a", "b"], PROBLEM, "lacks a; b"),
        (list("abcdefg"), PROBLEM, "lacks a; b; c; d; e and 2 more"),
    ],
)
def test_database_rights(missing: list[str], health: Health, words: str) -> None:
    says(doctor_database_lines.database_rights(missing, role="sidecar"), health, words)


@pytest.mark.parametrize(
    ("ahead", "error", "health", "words"),
    [
        (0.2, 0.0, OK, "less than 1 s from"),
        (5.0, 0.0, OK, "5 s ahead of"),
        (-5.4, 0.5, OK, "5 s behind"),
        (-6.0, 0.5, PROBLEM, "6 s behind the database"),
        (3600.0, 1.0, PROBLEM, "3600 s ahead of the database"),
    ],
)
def test_clocks(ahead: float, error: float, health: Health, words: str) -> None:
    says(doctor_database_lines.machine_clock(ahead, error_seconds=error), health, words)


@pytest.mark.parametrize(
    ("ahead", "health", "words"),
    [
        # The Date of the management API has whole seconds and may be a second old: one machine, one clock.
        (0.0, OK, "less than 3 s from"),
        (-1.1, OK, "less than 3 s from"),
        (-1.9, OK, "less than 3 s from"),
        (4.0, OK, "5 s ahead of"),
        (-6.9, OK, "6 s behind"),
        (-9.0, PROBLEM, "8 s behind the database"),
        (3600.0, PROBLEM, "3601 s ahead of the database"),
    ],
)
def test_clock_of_a_broker(ahead: float, health: Health, words: str) -> None:
    says(doctor_database_lines.broker_clock(ahead, error_seconds=0.05), health, words)


def test_clock_of_a_broker_that_does_not_tell() -> None:
    says(doctor_database_lines.broker_clock(None, trouble="it refuses this user"), UNKNOWN, "refuses")


@pytest.mark.parametrize(
    ("count", "reporting", "health", "words"),
    [
        (3, 1, OK, "1 of 3"),
        (3, 0, PROBLEM, "none of 3 registered reported"),
        (0, 0, PROBLEM, "none is registered"),
    ],
)
def test_workers(count: int, reporting: int, health: Health, words: str) -> None:
    says(doctor_database_lines.workers(count, reporting), health, words)


@pytest.mark.parametrize(
    ("ahead", "health", "words"),
    [
        ({}, OK, "no heartbeat"),
        ({7: 5.0, 8: -30.0}, OK, "no heartbeat"),
        ({7: 6.0, 8: 90.0}, PROBLEM, "2 worker(s) report from the future, worker 8 by 90 s"),
    ],
)
def test_worker_clocks(ahead: Mapping[int, float], health: Health, words: str) -> None:
    says(doctor_database_lines.worker_clocks(ahead), health, words)


def test_broker() -> None:
    says(doctor_broker_lines.broker(None), OK, "answers")
    says(doctor_broker_lines.broker("nobody listens there"), PROBLEM, "nobody listens there")
    says(doctor_broker_lines.broker_rights([]), OK, "may do all")
    says(doctor_broker_lines.broker_rights(["read on queue 'q'"]), PROBLEM, "lacks read on queue 'q'")


def taken(count: int, *tags: str, ready: int = 3) -> Consumers:
    return Consumers(count=count, ready=ready, tags=tags)


UNTOLD = Consumers(count=2, ready=0)


@pytest.mark.parametrize(
    ("consumers", "sidecar", "unrelated"),
    [
        (None, (PROBLEM, "there is no queue"), (OK, "nobody else")),
        (taken(0), (PROBLEM, "no replica consumes 'attune.dlx.queue', where 3"), (OK, "nobody else")),
        (taken(1, "dlq-handler.a"), (OK, "1 replica(s) consume"), (OK, "nobody else")),
        (taken(2, "dlq-handler.a", "dlq-handler.b"), (OK, "2 replica(s) consume"), (OK, "nobody else")),
        (
            taken(2, "dlq-handler.a", "executor.dlq"),
            (OK, "1 replica(s) consume"),
            (PROBLEM, "'executor.dlq' also"),
        ),
        (taken(1, "executor.dlq"), (PROBLEM, "none of the 1"), (PROBLEM, "'executor.dlq' also")),
        (UNTOLD, (UNKNOWN, "their owners are unknown"), (UNKNOWN, "is not told")),
    ],
)
def test_who_consumes_the_intake_queue(
    consumers: Consumers | None, sidecar: tuple[Health, str], unrelated: tuple[Health, str]
) -> None:
    names = {"queue": QUEUE, "own_prefix": "dlq-handler."}
    says(doctor_broker_lines.sidecar(consumers, **names), *sidecar)
    says(doctor_broker_lines.other_consumers(consumers, **names), *unrelated)


@pytest.mark.parametrize(
    ("consumers", "health", "words"),
    [
        (None, PROBLEM, "there is no queue 'q': slots are not freed"),
        (Consumers(count=0, ready=4), PROBLEM, "'q' has no consumer, and 4 message(s) wait there: slots are"),
        (Consumers(count=1, ready=0), OK, "1 consume(s) 'q'"),
    ],
)
def test_queues_of_the_executor(consumers: Consumers | None, health: Health, words: str) -> None:
    looked = doctor_broker_lines.COMPLETIONS
    says(
        doctor_broker_lines.host_queue(looked, consumers, queue="q"),
        health,
        words,
    )


def test_topology_is_what_its_check_concludes() -> None:
    whole = a_stock_world(bindings=[bound("attune.dlx", QUEUE, dispatch_key())])
    fine = doctor_broker_lines.topology(check(whole, expectation()), ())
    hole = doctor_broker_lines.topology(check(a_stock_world(), expectation()), ())
    unread = doctor_broker_lines.topology(
        check(a_stock_world(is_complete=False), expectation()), ("the API is away",)
    )

    says(fine, OK, "arrives")
    says(hole, PROBLEM, "what dies in 'worker.7.executions' is lost")
    says(unread, UNKNOWN, "the API is away")
    [harmless] = fine.notes
    assert "attune.events.queue" in harmless, "what does no harm is told beside it"
    assert not harmless.startswith("note"), "it is printed as a note"


def test_topology_that_has_drifted_says_so() -> None:
    whole = a_stock_world(bindings=[bound("attune.dlx", QUEUE, dispatch_key())])
    seen = doctor_broker_lines.topology(check(whole, expectation(ttl_ms=60_000)), ())

    assert any(note.startswith("drift: ") for note in seen.notes)


def a_canary(state: CanaryState) -> WorkerCanary:
    return WorkerCanary(worker_id=7, state=state, explanation="so it is")


@pytest.mark.parametrize(
    ("state", "health"),
    [(CanaryState.OK, OK), (CanaryState.LOST, PROBLEM), (CanaryState.UNKNOWN, UNKNOWN)],
)
def test_canary(state: CanaryState, health: Health) -> None:
    says(doctor_lines.canary([a_canary(state)]), health, "1")


def test_a_canary_that_could_not_be_sent_tells_nothing() -> None:
    says(doctor_lines.canary((), "no sidecar consumes 'q'"), UNKNOWN, "no sidecar consumes 'q'")
    says(doctor_lines.canary(()), UNKNOWN, "no worker")


@pytest.mark.parametrize(
    ("passes", "fix"), [(True, doctor_lines.NEXT_CANARY), (False, doctor_lines.REPAIR_FIRST)]
)
def test_nobody_is_told_to_repair_what_the_next_canary_settles(passes: bool, fix: str) -> None:
    seen = doctor_lines.canary([replace(a_canary(CanaryState.UNKNOWN), passes=passes)])

    assert seen.fix == fix


def test_settings_that_surprise_are_no_problem() -> None:
    seen = doctor_lines.settings(["raised to 330 s"])
    says(seen, OK, "can be used")
    assert seen.notes == ("raised to 330 s",)


def test_what_rests_on_a_server_that_is_away_cannot_be_told() -> None:
    says(
        doctor_lines.without_database(doctor_database_lines.WORKERS),
        UNKNOWN,
        "the database is unreachable",
    )
    says(doctor_lines.without_broker(doctor_broker_lines.TOPOLOGY), UNKNOWN, "the broker does not answer")


def test_the_worst_line_is_the_conclusion_and_comes_first() -> None:
    looked = Looked(Component.DLQ_HANDLER, "x")
    fine, wrong, unknown = looked.ok("a"), looked.problem("b", "c"), looked.unknown("d", "e")

    assert conclude([fine]) is OK
    assert conclude([fine, unknown]) is UNKNOWN
    assert conclude([fine, unknown, wrong]) is PROBLEM
    assert conclude([]) is UNKNOWN, "who looked at nothing cannot tell"
    assert worst_first([fine, unknown, wrong]) == [wrong, unknown, fine]


def test_who_is_listed_late_is_not_sent_to_repair_the_management_api() -> None:
    late = Consumers(count=1, ready=0, lists_fewer=True)
    found = doctor_broker_lines.sidecar(late, queue="q", own_prefix="ours.")
    assert "look again in ten seconds" in str(found.fix)
    untold = doctor_broker_lines.sidecar(Consumers(count=1, ready=0), queue="q", own_prefix="ours.")
    assert "look again" not in str(untold.fix)


@pytest.mark.parametrize(
    ("taken", "words"),
    [
        (Consumers(count=0, ready=1), "1 dead letter waits"),
        (Consumers(count=0, ready=6, has_canaries=True), "6 messages (canaries included) wait"),
        (Consumers(count=0, ready=1, has_canaries=True), "1 message (canaries included) waits"),
        (Consumers(count=0, ready=0, has_canaries=True), "0 dead letters wait"),
        (Consumers(count=1, ready=1793, unacknowledged=1500), "3293 dead letters wait"),
        (Consumers(count=2, ready=1793, unacknowledged=None), "at least 1793 dead letters wait"),
        (
            Consumers(count=2, ready=1793, unacknowledged=None, own_unacknowledged=1500),
            "at least 3293 dead letters wait",
        ),
        # The management API is seconds behind: this replica knows its own number.
        (Consumers(count=2, ready=10, unacknowledged=3, own_unacknowledged=20), "30 dead letters wait"),
    ],
)
def test_dead_letters_that_a_replica_holds_wait_too(taken: Consumers, words: str) -> None:
    assert doctor_broker_lines.describe_waiting(taken) == words
    for tags in ((), ("ours.one",), ("other",), None):
        seen = doctor_broker_lines.sidecar(replace(taken, tags=tags), queue="q", own_prefix="ours.")
        assert words in seen.what
