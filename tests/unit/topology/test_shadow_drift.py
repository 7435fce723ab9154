"""Drift of the shadow queue: only arguments that could be read are compared."""

from dlq_handler.broker.admin.snapshot import QueueFacts, Snapshot
from dlq_handler.topology.blueprint import ShadowLimits
from dlq_handler.topology.drift import find_shadow_drift
from dlq_handler.topology.finding import Finding, Severity
from tests.support.topologies import expectation

SHADOW = "attune.dlx.shadow.queue"
LIMITS = ShadowLimits(max_letters=10_000, ttl_ms=3_600_000)


def drift(arguments: dict[str, object], *, is_complete: bool) -> list[Finding]:
    snapshot = Snapshot(queues=[QueueFacts(name=SHADOW, arguments=arguments)], is_complete=is_complete)
    expected = expectation(intake_queue=SHADOW, shadow=LIMITS)
    findings = find_shadow_drift(snapshot, expected, LIMITS)
    return [one for one in findings if one.severity is Severity.DRIFT]


def test_without_the_management_api_the_ttl_alone_is_compared() -> None:
    assert drift({"x-message-ttl": 3_600_000}, is_complete=False) == []
    [other_ttl] = drift({"x-message-ttl": 1_000}, is_complete=False)
    assert "x-message-ttl=1000" in other_ttl.is_now
    assert drift({}, is_complete=False) == [], "the broker did not let us read any"


def test_with_the_management_api_a_missing_limit_is_drift() -> None:
    assert drift(dict(LIMITS.arguments), is_complete=True) == []
    assert len(drift({"x-message-ttl": 3_600_000}, is_complete=True)) == 1
