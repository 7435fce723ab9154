"""The conclusion: a broken route only when an execution can hang because of it."""

from typing import Any

import pytest

from dlq_handler.broker.admin.snapshot import QueueFacts
from dlq_handler.diagnosis.check_servers import topology
from dlq_handler.diagnosis.view import TopologyFact
from dlq_handler.host.names import OTHER_KEYS, STOCK_QUEUE
from dlq_handler.topology.blueprint import ShadowLimits
from dlq_handler.topology.canary import CANARY_QUEUE
from dlq_handler.topology.check import CheckedTopology, Conclusion, QueueRole, check
from dlq_handler.topology.drift import Expectation, Severity
from dlq_handler.topology.routing import Answer
from tests.support.topologies import (
    DLX,
    a_stock_world,
    a_worker_queue,
    bound,
    dispatch_key,
    expectation,
)
from tests.support.views import a_view

OWN = "attune.dlx.sidecar.queue"
CURED = [bound(DLX, STOCK_QUEUE, dispatch_key())]


def answers(checked: CheckedTopology) -> dict[str, tuple[QueueRole, Answer]]:
    return {queue.queue: (queue.role, queue.arrives) for queue in checked.queues}


def test_the_stock_world_is_a_broken_route() -> None:
    checked = check(a_stock_world(), expectation())

    assert checked.conclusion is Conclusion.BROKEN_ROUTE
    assert answers(checked)["worker.7.executions"] == (QueueRole.WORKER, Answer.BROKEN_ROUTE)


def test_bound_worker_keys_are_fine_though_rejected_requests_leave_no_record() -> None:
    checked = check(a_stock_world(bindings=CURED), expectation())

    assert checked.conclusion is Conclusion.FINE
    assert answers(checked)["attune.execution.requests.queue"] == (QueueRole.OTHER, Answer.BROKEN_ROUTE)
    assert [finding.severity for finding in checked.findings] == [Severity.NOTE]
    assert "attune.events.queue" in {queue.queue for queue in checked.queues}
    assert STOCK_QUEUE not in answers(checked)


@pytest.mark.parametrize(
    ("blueprint", "is_now", "way_out"),
    [
        ({}, "leave no record; ", "a separate intake queue (dlq_handler.intake.queue)"),
        ({"intake_queue": OWN}, "leave no record: the intake queue is bound with", None),
        (
            {"intake_queue": OWN, "shadow": ShadowLimits(max_letters=1, ttl_ms=1)},
            "leave no record: shadow mode receives only copies",
            None,
        ),
    ],
    ids=["stock queue", "separate queue", "shadow"],
)
def test_the_note_on_queues_without_records_fits_the_kind_of_intake_queue(
    blueprint: dict[str, Any], is_now: str, way_out: str | None
) -> None:
    """One of them belongs to a registered worker. A separate intake queue is suggested only where there is none."""
    packs = QueueFacts(name="worker.7.packs", arguments={"x-dead-letter-exchange": DLX})
    bindings = [*CURED, bound(DLX, OWN, dispatch_key()), bound("attune.events", packs.name, "pack.deleted")]
    world = a_stock_world(bindings=bindings, queues=[packs, QueueFacts(name=OWN)])

    checked = check(world, expectation(**blueprint))

    assert answers(checked)["worker.7.packs"] == (QueueRole.OTHER, Answer.BROKEN_ROUTE)
    note = checked.findings[-1]
    assert "queue(s) whose dead letters dlq-handler does not receive: 'attune." in note.subject
    evidence = topology(a_view(topology=TopologyFact(checked=checked))).evidence[-1]
    assert is_now + (way_out or "") in evidence
    assert ("no action needed" in evidence) is (way_out is None)


def test_a_queue_bound_by_a_pattern_is_taken_if_all_keys_that_attune_publishes_are_bound() -> None:
    """Attune publishes one key that matches `enforcement.#`."""
    own = expectation(intake_queue=OWN)
    bindings = [bound(DLX, OWN, key) for key in (dispatch_key(), *OTHER_KEYS)]
    checked = check(a_stock_world(bindings=bindings, queues=[QueueFacts(name=OWN)]), own)

    assert answers(checked)["attune.enforcements.queue"] == (QueueRole.OTHER, Answer.ARRIVES)
    assert answers(checked)["attune.events.queue"] == (QueueRole.OTHER, Answer.BROKEN_ROUTE)
    assert not any("attune.enforcements.queue" in finding.subject for finding in checked.findings)

    lost = check(a_stock_world(bindings=CURED), expectation())
    assert answers(lost)["attune.enforcements.queue"] == (QueueRole.OTHER, Answer.BROKEN_ROUTE)


def test_the_canarys_queue_is_ours_and_no_broken_route_of_the_hosts() -> None:
    canary = QueueFacts(name=CANARY_QUEUE, arguments={"x-dead-letter-exchange": DLX})
    checked = check(a_stock_world(bindings=CURED, queues=[canary]), expectation())

    assert CANARY_QUEUE not in answers(checked)
    assert not any(CANARY_QUEUE in finding.subject for finding in checked.findings)


def test_the_queue_of_a_worker_without_a_row_is_worth_a_note() -> None:
    checked = check(a_stock_world(bindings=CURED, queues=[a_worker_queue(8)]), expectation(7))

    assert checked.conclusion is Conclusion.FINE
    assert answers(checked)["worker.8.executions"] == (QueueRole.RETIRED_WORKER, Answer.BROKEN_ROUTE)


def test_with_the_database_away_every_worker_queue_counts() -> None:
    expected = expectation()
    unknown = Expectation(blueprint=expected.blueprint, worker_ids=None, ttl_ms=expected.ttl_ms)

    assert check(a_stock_world(), unknown).conclusion is Conclusion.BROKEN_ROUTE
    assert check(a_stock_world(bindings=CURED), unknown).conclusion is Conclusion.FINE


def test_a_finding_that_is_a_broken_route_decides() -> None:
    limited = QueueFacts(name=STOCK_QUEUE, policy={"max-length": 5})

    assert (
        check(a_stock_world(bindings=CURED, intake=limited), expectation()).conclusion
        is Conclusion.BROKEN_ROUTE
    )


def test_an_unknown_answer_is_neither_fine_nor_a_broken_route() -> None:
    partial = check(a_stock_world(bindings=CURED, is_complete=False), expectation())

    assert partial.conclusion is Conclusion.UNKNOWN


def test_a_broken_route_outweighs_an_unknown_answer() -> None:
    world = a_stock_world(queues=[a_worker_queue(auto_delete=True)], is_complete=False)

    assert check(world, expectation()).conclusion is Conclusion.BROKEN_ROUTE


def test_with_dead_lettering_off_queues_that_drop_are_warned_of() -> None:
    off = check(a_stock_world(), expectation(has_intake=False))
    kept = check(a_stock_world(bindings=CURED), expectation(has_intake=False))

    assert off.conclusion is Conclusion.FINE
    assert off.intake_queue is None
    assert "'worker.7.executions'" in off.findings[-1].subject
    assert off.findings[-1].severity is Severity.DRIFT
    assert "worker.7.executions" not in kept.findings[-1].subject
