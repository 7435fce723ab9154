"""Findings: each drift named with both values and a way out, broken routes only where an execution can hang."""

from typing import Any

import pytest

from dlq_handler.broker.admin.snapshot import BindingFacts, ConsumerFacts, ExchangeFacts, QueueFacts, Snapshot
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.topology.drift import find_drift
from dlq_handler.topology.finding import Finding, Severity
from dlq_handler.topology.intake_drift import other_consumers
from tests.support.topologies import (
    DLX,
    a_stock_world,
    a_worker_queue,
    bound,
    dispatch_key,
    expectation,
)

ARGUMENTS = {"x-dead-letter-exchange": DLX, "x-message-ttl": 300_000}


def only(snapshot: Snapshot, **expected: Any) -> Finding:
    findings = find_drift(snapshot, expectation(**expected))
    assert len(findings) == 1, findings
    return findings[0]


def test_a_stock_world_has_no_drift() -> None:
    assert find_drift(a_stock_world(), expectation()) == ()


def test_another_ttl_is_drift_with_both_values_and_says_which_one_counts() -> None:
    finding = only(a_stock_world(), ttl_ms=60_000)

    assert finding.severity is Severity.DRIFT
    assert "300000" in finding.is_now
    assert "60000" in finding.wanted
    assert "300000, the longer of the two, is used" in (finding.way_out or "")


def test_a_policy_can_only_shorten_the_ttl() -> None:
    shortened = a_worker_queue(policy={"message-ttl": 5000})
    lengthened = a_worker_queue(policy={"message-ttl": 900_000})

    assert only(a_stock_world(queues=[shortened])).is_now == "x-message-ttl=5000"
    assert find_drift(a_stock_world(queues=[lengthened]), expectation()) == ()


def test_queues_that_are_alike_share_one_finding() -> None:
    findings = find_drift(a_stock_world(workers=range(1, 2001)), expectation(*range(1, 2001), ttl_ms=1))

    assert len(findings) == 1
    assert findings[0].subject.startswith("2000 worker queues: 'worker.1.executions'")
    assert findings[0].subject.endswith("and 1995 more")


@pytest.mark.parametrize(
    ("queue", "severity", "is_now"),
    [
        (
            a_worker_queue(arguments={"x-dead-letter-exchange": DLX}),
            Severity.BROKEN_ROUTE,
            "no x-message-ttl",
        ),
        (a_worker_queue(auto_delete=True), Severity.BROKEN_ROUTE, "auto-delete"),
        (
            a_worker_queue(arguments={**ARGUMENTS, "x-expires": 300_000}),
            Severity.BROKEN_ROUTE,
            "x-expires=300000",
        ),
        (a_worker_queue(durable=False), Severity.DRIFT, "not durable"),
        (a_worker_queue(type="quorum"), Severity.NOTE, "type 'quorum'"),
    ],
)
def test_a_worker_queue_that_loses_messages_is_named(
    queue: QueueFacts, severity: Severity, is_now: str
) -> None:
    finding = only(a_stock_world(queues=[queue]))

    assert (finding.severity, finding.subject, finding.is_now) == (
        severity,
        "queue 'worker.7.executions'",
        is_now,
    )
    assert finding.way_out


def test_an_expiry_above_the_ttl_is_fine() -> None:
    queue = a_worker_queue(arguments={**ARGUMENTS, "x-expires": 300_001})

    assert find_drift(a_stock_world(queues=[queue]), expectation()) == ()


def test_a_ttl_that_a_hidden_policy_may_set_is_no_broken_route() -> None:
    queue = a_worker_queue(arguments={"x-dead-letter-exchange": DLX}, policy_is_known=False)

    assert only(a_stock_world(queues=[queue])).severity is Severity.NOTE


def test_a_registered_worker_without_a_queue_is_named() -> None:
    finding = only(a_stock_world(workers=[]))

    assert (finding.severity, finding.subject) == (Severity.DRIFT, "queue 'worker.7.executions'")


def test_a_dead_letter_exchange_of_another_type_is_used_as_it_is() -> None:
    findings = find_drift(a_stock_world(dlx=ExchangeFacts(name=DLX, type="topic")), expectation())

    assert findings[0].is_now == "type 'topic'"
    assert (findings[0].way_out or "").startswith("used as it is")


def test_a_missing_dead_letter_exchange_is_a_broken_route() -> None:
    finding = only(a_stock_world(), dead_letter_exchange="other.dlx")

    assert (finding.severity, finding.is_now) == (Severity.BROKEN_ROUTE, "does not exist")


def test_a_missing_intake_queue_is_a_broken_route() -> None:
    finding = only(a_stock_world(), intake_queue="mine")

    assert (finding.severity, finding.subject) == (Severity.BROKEN_ROUTE, "intake queue 'mine'")


@pytest.mark.parametrize(
    ("settings", "severity", "is_now"),
    [
        ({"arguments": {"x-message-ttl": 9}}, Severity.BROKEN_ROUTE, "message-ttl 9"),
        ({"policy": {"max-length": 9}}, Severity.BROKEN_ROUTE, "max-length 9"),
        (
            {"policy": {"max-length-bytes": 9, "dead-letter-exchange": "x"}},
            Severity.DRIFT,
            "max-length-bytes 9",
        ),
        ({"auto_delete": True}, Severity.BROKEN_ROUTE, "auto-delete"),
        ({"durable": False}, Severity.DRIFT, "not durable"),
        (
            {"type": "quorum", "policy": {"delivery-limit": 5}},
            Severity.DRIFT,
            "quorum queue, delivery limit 5, no dead-letter exchange",
        ),
    ],
)
def test_limits_of_the_intake_queue_are_named(
    settings: dict[str, Any], severity: Severity, is_now: str
) -> None:
    finding = only(a_stock_world(intake=QueueFacts(name=STOCK_QUEUE, **settings)))

    assert (finding.severity, finding.is_now) == (severity, is_now)


@pytest.mark.parametrize(
    ("version", "policy", "limits"),
    [
        ("3.13.7", {}, 0),
        ("4.0.5", {}, 1),
        ("4.0.5", {"delivery-limit": -1}, 0),
        ("4.0.5", {"dead-letter-exchange": "x"}, 0),
        ("", {}, 0),
    ],
)
def test_a_quorum_queue_has_a_delivery_limit_by_itself_since_version_4(
    version: str, policy: dict[str, Any], limits: int
) -> None:
    intake = QueueFacts(name=STOCK_QUEUE, type="quorum", policy=policy)

    assert len(find_drift(a_stock_world(intake=intake, broker_version=version), expectation())) == limits


def test_a_foreign_consumer_is_named_and_our_replicas_are_not() -> None:
    world = a_stock_world(
        consumers=[
            ConsumerFacts(queue=STOCK_QUEUE, tag="executor.dlq"),
            ConsumerFacts(queue=STOCK_QUEUE, tag="dlq-handler.host-1"),
            ConsumerFacts(queue="worker.7.executions", tag="worker-7"),
        ]
    )

    assert other_consumers(world, expectation()) == ("executor.dlq",)
    finding = only(world)
    assert finding.severity is Severity.DRIFT
    assert "executor.dlq" in finding.is_now
    assert "attune.dlx.sidecar.queue" in (finding.way_out or "")


def test_letters_that_also_go_to_the_stock_queue_are_drift() -> None:
    world = a_stock_world(
        queues=[QueueFacts(name="mine")],
        bindings=[bound(DLX, "mine", dispatch_key()), bound(DLX, STOCK_QUEUE, dispatch_key())],
    )
    finding = only(world, intake_queue="mine")

    assert finding.severity is Severity.DRIFT
    assert "to 'attune.dlx.queue'" in finding.is_now


def test_bindings_of_deleted_workers_are_a_note() -> None:
    finding = only(a_stock_world(workers=[7, 8], bindings=_bindings(7, 8, 9)))

    assert finding.severity is Severity.NOTE
    assert "1 worker(s) that have neither row nor queue: '9'" in finding.is_now


def _bindings(*workers: int) -> list[BindingFacts]:
    return [bound(DLX, STOCK_QUEUE, dispatch_key(worker)) for worker in workers]


def test_without_intake_no_finding_is_a_broken_route() -> None:
    world = a_stock_world(queues=[a_worker_queue(auto_delete=True, arguments={})])
    findings = find_drift(world, expectation(has_intake=False))

    assert {finding.severity for finding in findings} == {Severity.DRIFT}
