"""All differences between a broker's topology and what dead letters need. Pure."""

from collections.abc import Iterator

from dlq_handler.broker.admin.snapshot import Snapshot
from dlq_handler.topology.finding import Expectation, Finding, Severity
from dlq_handler.topology.intake_drift import find_intake_drift
from dlq_handler.topology.shadow_drift import find_shadow_drift
from dlq_handler.topology.worker_drift import find_worker_queue_drift


def find_drift(snapshot: Snapshot, expected: Expectation) -> tuple[Finding, ...]:
    """Broken routes first."""
    findings = [
        *_dead_letter_exchange(snapshot, expected),
        *find_worker_queue_drift(snapshot, expected),
        *(_intake_drift(snapshot, expected) if expected.blueprint.has_intake else ()),
    ]
    order = list(Severity)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))


def _intake_drift(snapshot: Snapshot, expected: Expectation) -> Iterator[Finding]:
    shadow = expected.blueprint.shadow
    return (
        find_intake_drift(snapshot, expected)
        if shadow is None
        else find_shadow_drift(snapshot, expected, shadow)
    )


def _dead_letter_exchange(snapshot: Snapshot, expected: Expectation) -> Iterator[Finding]:
    name = expected.blueprint.dead_letter_exchange
    exchange = snapshot.exchanges.get(name)
    if exchange is None:
        yield Finding(
            severity=expected.broken_route,
            subject=f"exchange {name!r}",
            is_now="does not exist",
            wanted="a durable direct exchange",
            way_out="run `dlq-handler topology apply`, or start Attune",
        )
    elif exchange.type != "direct":
        yield Finding(
            severity=Severity.DRIFT,
            subject=f"exchange {name!r}",
            is_now=f"type {exchange.type!r}",
            wanted="type 'direct', as Attune declares it",
            way_out="used as it is; a stock Attune service that starts now fails with PRECONDITION_FAILED",
        )
