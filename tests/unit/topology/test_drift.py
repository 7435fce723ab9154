"""Findings: each drift is named with both values, and is a broken route only where an execution can hang."""

from typing import Any

import pytest

from dlq_handler.broker.admin.snapshot import BindingFacts, ConsumerFacts, ExchangeFacts, QueueFacts, Snapshot
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.topology.blueprint import ShadowLimits
from dlq_handler.topology.drift import (
    Finding,
    Severity,
    find_drift,
    find_shadow_drift,
    other_consumers,
)
from tests.support.topologies import DLX, a_stock_world, a_worker_queue, bound, dispatch_key, expectation

BROKEN_ROUTE, DRIFT, NOTE = Severity
TO_DLX = {"x-dead-letter-exchange": DLX}
ARGUMENTS = {**TO_DLX, "x-message-ttl": 300_000}
SHADOW = "attune.dlx.shadow.queue"
LIMITS = ShadowLimits(max_letters=10_000, ttl_ms=3_600_000)


def only(snapshot: Snapshot, **expected: Any) -> Finding:
    [finding] = find_drift(snapshot, expectation(**expected))
    return finding


def a_consumer(tag: str, queue: str = STOCK_QUEUE) -> ConsumerFacts:
    return ConsumerFacts(queue=queue, tag=tag)


def bindings(*workers: int) -> list[BindingFacts]:
    return [bound(DLX, STOCK_QUEUE, dispatch_key(worker)) for worker in workers]


@pytest.mark.parametrize(
    "queues",
    [
        [],
        [a_worker_queue(policy={"message-ttl": 900_000})],
        [a_worker_queue(arguments={**ARGUMENTS, "x-expires": 300_001})],
    ],
    ids=["stock", "a policy can only shorten the TTL", "expiry above the TTL"],
)
def test_no_drift(queues: list[QueueFacts]) -> None:
    assert find_drift(a_stock_world(queues=queues), expectation()) == ()


@pytest.mark.parametrize(
    ("changes", "severity", "is_now"),
    [
        ({"arguments": TO_DLX}, BROKEN_ROUTE, "no x-message-ttl"),
        (
            {"arguments": TO_DLX, "policy_is_known": False},
            NOTE,
            "no x-message-ttl argument; a policy may set one",
        ),
        ({"policy": {"message-ttl": 5000}}, DRIFT, "x-message-ttl=5000"),
        ({"auto_delete": True}, BROKEN_ROUTE, "auto-delete"),
        ({"arguments": {**ARGUMENTS, "x-expires": 300_000}}, BROKEN_ROUTE, "x-expires=300000"),
        ({"durable": False}, DRIFT, "not durable"),
        ({"type": "quorum"}, NOTE, "type 'quorum'"),
    ],
)
def test_a_worker_queue_that_loses_messages_is_named(
    changes: dict[str, Any], severity: Severity, is_now: str
) -> None:
    finding = only(a_stock_world(queues=[a_worker_queue(**changes)]))

    assert (finding.severity, finding.subject, finding.is_now, bool(finding.way_out)) == (
        severity,
        "queue 'worker.7.executions'",
        is_now,
        True,
    )


@pytest.mark.parametrize(
    ("settings", "severity", "is_now"),
    [
        ({"arguments": {"x-message-ttl": 9}}, BROKEN_ROUTE, "message-ttl 9"),
        ({"policy": {"max-length": 9}}, BROKEN_ROUTE, "max-length 9"),
        ({"policy": {"max-length-bytes": 9, "dead-letter-exchange": "x"}}, DRIFT, "max-length-bytes 9"),
        ({"auto_delete": True}, BROKEN_ROUTE, "auto-delete"),
        ({"durable": False}, DRIFT, "not durable"),
        (
            {"type": "quorum", "policy": {"delivery-limit": 5}},
            DRIFT,
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


@pytest.mark.parametrize(
    ("world", "expected", "severity", "subject", "is_now"),
    [
        (a_stock_world(), {"ttl_ms": 60_000}, DRIFT, "queue 'worker.7.executions'", "x-message-ttl=300000"),
        (a_stock_world(workers=[]), {}, DRIFT, "queue 'worker.7.executions'", "no such queue"),
        (
            a_stock_world(),
            {"dead_letter_exchange": "other.dlx"},
            BROKEN_ROUTE,
            "exchange 'other.dlx'",
            "does not exist",
        ),
        (a_stock_world(), {"intake_queue": "mine"}, BROKEN_ROUTE, "intake queue 'mine'", "does not exist"),
        (
            a_stock_world(
                queues=[QueueFacts(name="mine")],
                bindings=[bound(DLX, "mine", dispatch_key()), bound(DLX, STOCK_QUEUE, dispatch_key())],
            ),
            {"intake_queue": "mine"},
            DRIFT,
            "exchange 'attune.dlx'",
            "also routes workers' dead letters to 'attune.dlx.queue'",
        ),
        (
            a_stock_world(workers=[7, 8], bindings=bindings(7, 8, 9)),
            {},
            NOTE,
            "intake queue 'attune.dlx.queue'",
            "bound for 1 worker(s) that have neither row nor queue: '9'",
        ),
    ],
    ids=["TTL", "no worker queue", "no DLX", "no intake queue", "delivered twice", "deleted worker"],
)
def test_one_finding_of_the_whole_topology(
    world: Snapshot, expected: dict[str, Any], severity: Severity, subject: str, is_now: str
) -> None:
    finding = only(world, **expected)

    assert (finding.severity, finding.subject) == (severity, subject)
    assert finding.is_now.startswith(is_now)


def test_a_dead_letter_exchange_of_another_type_is_used_as_it_is() -> None:
    finding = find_drift(a_stock_world(dlx=ExchangeFacts(name=DLX, type="topic")), expectation())[0]

    assert (finding.severity, finding.is_now) == (DRIFT, "type 'topic'")


def test_queues_with_the_same_drift_share_one_finding() -> None:
    [finding] = find_drift(a_stock_world(workers=range(1, 2001)), expectation(*range(1, 2001), ttl_ms=1))

    assert finding.subject.startswith("2000 worker queues: 'worker.1.executions'")
    assert finding.subject.endswith("and 1995 more")


def test_another_consumer_is_named_and_replicas_are_not() -> None:
    world = a_stock_world(
        consumers=[
            a_consumer("executor.dlq"),
            a_consumer("dlq-handler.host-1"),
            a_consumer("worker-7", "worker.7.executions"),
        ]
    )

    assert other_consumers(world, expectation()) == ("executor.dlq",)
    finding = only(world)
    assert (finding.severity, finding.is_now) == (DRIFT, "1 other consumer(s): 'executor.dlq'")


def test_without_intake_no_finding_is_a_broken_route() -> None:
    world = a_stock_world(queues=[a_worker_queue(auto_delete=True, arguments={})])
    findings = find_drift(world, expectation(has_intake=False))

    assert {finding.severity for finding in findings} == {DRIFT}


@pytest.mark.parametrize(
    ("arguments", "is_complete", "drifts"),
    [
        (LIMITS.arguments, True, 0),
        ({"x-message-ttl": 3_600_000}, True, 1),
        # Without the management API only arguments that could be read are compared.
        ({"x-message-ttl": 3_600_000}, False, 0),
        ({"x-message-ttl": 1_000}, False, 1),
        ({}, False, 0),
    ],
)
def test_drift_of_the_shadow_queue(arguments: dict[str, object], is_complete: bool, drifts: int) -> None:
    snapshot = Snapshot(queues=[QueueFacts(name=SHADOW, arguments=arguments)], is_complete=is_complete)
    findings = find_shadow_drift(snapshot, expectation(intake_queue=SHADOW, shadow=LIMITS), LIMITS)

    assert sum(one.severity is DRIFT for one in findings) == drifts
