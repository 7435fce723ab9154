"""All differences between a broker's topology and what dead letters need. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from dlq_handler.broker.admin.snapshot import QueueFacts, Snapshot
from dlq_handler.topology.blueprint import ShadowLimits
from dlq_handler.topology.finding import Expectation, Finding, Severity, queues_as_subject
from dlq_handler.topology.intake_drift import find_intake_drift
from dlq_handler.topology.routing import ALTERNATE_EXCHANGE


def find_drift(snapshot: Snapshot, expected: Expectation) -> tuple[Finding, ...]:
    """Broken routes first."""
    findings = [
        *_dead_letter_exchange(snapshot, expected),
        *_worker_queue_drift(snapshot, expected),
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


def find_shadow_drift(snapshot: Snapshot, expected: Expectation, limits: ShadowLimits) -> Iterator[Finding]:
    """Drift of the shadow queue, and the effect of shadow mode on the other queues."""
    blueprint = expected.blueprint
    subject = f"shadow queue {blueprint.intake_queue!r}"
    yield Finding(
        severity=Severity.NOTE,
        subject=subject,
        is_now="receives copies of dead letters: they are decided, but no execution is ended and no event published",
        wanted="dlq_handler.shadow.enabled: false, once you trust the records",
        way_out="`dlq-handler letters list` shows the decisions",
    )
    queue = snapshot.queues.get(blueprint.intake_queue)
    if queue is None:
        yield Finding(
            severity=expected.broken_route,
            subject=subject,
            is_now="does not exist",
            wanted=f"a durable queue with {_listed(limits.arguments)}",
            way_out="run `dlq-handler topology apply`",
        )
    elif _differs(queue.arguments, limits.arguments, all_are_known=snapshot.is_complete):
        yield Finding(
            severity=Severity.DRIFT,
            subject=subject,
            is_now=f"declared with {_listed(queue.arguments) or 'no arguments'}",
            wanted=_listed(limits.arguments),
            way_out="arguments are fixed at creation: delete the queue, it holds copies only, and run "
            "`dlq-handler topology apply`",
        )
    exchange = snapshot.exchanges.get(blueprint.dead_letter_exchange)
    alternate = exchange.text(ALTERNATE_EXCHANGE) if exchange is not None else None
    if alternate is not None:
        yield Finding(
            severity=Severity.DRIFT,
            subject=f"exchange {blueprint.dead_letter_exchange!r}",
            is_now=f"has the alternate exchange {alternate!r}, which receives only messages that no queue is bound for",
            wanted="no alternate exchange while shadow mode receives copies",
            way_out="dead letters with a key of the shadow queue no longer reach it: bind the queue behind it with the "
            "workers' keys as well",
        )


def _differs(arguments: Mapping[str, object], wanted: Mapping[str, object], *, all_are_known: bool) -> bool:
    """Without the management API, AMQP shows only some arguments: one that is not shown is unknown, not missing."""
    known = [name for name in wanted if all_are_known or name in arguments]
    return any(arguments.get(name) != wanted[name] for name in known)


def _listed(arguments: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(arguments.items()))


def _worker_queue_drift(snapshot: Snapshot, expected: Expectation) -> Iterator[Finding]:
    """Queues with the same drift share one finding, since a fleet can have thousands of queues."""
    alike: defaultdict[Finding, list[str]] = defaultdict(list)
    owner_of = expected.blueprint.workers.owner_of
    for queue in snapshot.queues.values():
        if owner_of(queue.name) is None:
            continue
        for finding in _worker_queue(queue, expected, is_complete=snapshot.is_complete):
            alike[finding].append(queue.name)
    for finding, names in alike.items():
        yield replace(finding, subject=queues_as_subject(names))
    yield from _missing_worker_queues(snapshot, expected)


def _worker_queue(queue: QueueFacts, expected: Expectation, *, is_complete: bool) -> Iterator[Finding]:
    ttl_ms = queue.ttl_ms
    policy_may_differ = not (is_complete and queue.policy_is_known)
    if ttl_ms is None:
        yield _worker_finding(
            Severity.NOTE if policy_may_differ else expected.broken_route,
            "no x-message-ttl" + (" argument; a policy may set one" if policy_may_differ else ""),
            f"x-message-ttl={expected.ttl_ms}",
            "messages for an unavailable worker never expire; set a message-ttl by policy, or let the "
            "queue be drained and declared again",
        )
    elif ttl_ms != expected.ttl_ms:
        yield _worker_finding(
            Severity.DRIFT,
            f"x-message-ttl={ttl_ms}",
            f"x-message-ttl={expected.ttl_ms} (message_queue.rabbitmq.worker_queue_ttl_ms)",
            f"nothing breaks: Attune ignores that setting, and {max(ttl_ms, expected.ttl_ms)}, the longer of "
            f"the two, is used; set it to {ttl_ms} to match the queue. Arguments are fixed at "
            "creation: another TTL needs the queue drained, deleted and declared again",
        )
    if queue.auto_delete:
        yield _worker_finding(
            expected.broken_route,
            "auto-delete",
            "not auto-delete",
            "it is deleted with its last consumer, and a deleted queue dead-letters nothing; declare it "
            "again without auto-delete",
        )
    expires_ms = queue.least("x-expires")
    if expires_ms is not None and (ttl_ms is None or expires_ms <= ttl_ms):
        yield _worker_finding(
            expected.broken_route,
            f"x-expires={expires_ms}",
            "no x-expires, or one above the TTL",
            "an unused queue is deleted before its messages die, and a deleted queue dead-letters nothing",
        )
    if not queue.durable:
        yield _worker_finding(
            Severity.DRIFT,
            "not durable",
            "durable",
            "a restart of the broker loses its messages without a dead letter; declare it again as durable",
        )
    if queue.type not in {"classic", "stream"}:
        yield _worker_finding(
            Severity.NOTE,
            f"type {queue.type!r}",
            "type 'classic', as Attune declares it",
            "it works; make sure that Attune's own declare does (a vhost's default queue type makes it so)",
        )


def _worker_finding(severity: Severity, is_now: str, wanted: str, way_out: str) -> Finding:
    return Finding(severity=severity, subject="", is_now=is_now, wanted=wanted, way_out=way_out)


def _missing_worker_queues(snapshot: Snapshot, expected: Expectation) -> Iterator[Finding]:
    queue_of = expected.blueprint.workers.queue
    missing = [
        queue_of(worker)
        for worker in sorted(expected.worker_ids or ())
        if queue_of(worker) not in snapshot.queues
    ]
    if missing:
        yield Finding(
            severity=Severity.DRIFT,
            subject=queues_as_subject(missing),
            is_now="no such queue, though the worker is registered",
            wanted="a durable queue with TTL and dead-letter exchange",
            way_out="Attune's publish to it is confirmed and lost; start the worker, delete its row, or run "
            "`dlq-handler topology declare-worker-queue`",
        )
