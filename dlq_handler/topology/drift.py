"""All differences between a broker's topology and what dead letters need, each as a finding. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from dlq_handler.broker.admin.snapshot import QueueFacts, Snapshot
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.topology.blueprint import Blueprint, ShadowLimits
from dlq_handler.topology.routing import ALTERNATE_EXCHANGE, route

_SHOWN = 5


class Severity(StrEnum):
    """The consequence of a finding."""

    BROKEN_ROUTE = "broken route"
    """An execution can hang because of this."""
    DRIFT = "drift"
    """Differs from the settings or from Attune's declaration. No execution can hang because of this."""
    NOTE = "note"
    """Worth knowing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    severity: Severity
    subject: str
    is_now: str
    wanted: str
    way_out: str | None
    """None: no action is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What this host is configured for."""

    blueprint: Blueprint
    ttl_ms: int
    worker_ids: frozenset[int] | None = None
    """None: unknown, because the database did not answer."""
    own_consumer_tag_prefix: str = "dlq-handler."

    @property
    def broken_route(self) -> Severity:
        """The severity of a broken route; without an intake, where no dead letters are consumed, it is drift."""
        return Severity.BROKEN_ROUTE if self.blueprint.has_intake else Severity.DRIFT


def queues_as_subject(queues: Sequence[str]) -> str:
    return f"queue {queues[0]!r}" if len(queues) == 1 else f"{len(queues)} worker queues: {listed(queues)}"


def listed(names: Iterable[str]) -> str:
    shown = list(names)
    rest = len(shown) - _SHOWN
    return ", ".join(map(repr, shown[:_SHOWN])) + (f" and {rest} more" if rest > 0 else "")


# Since version 4 a quorum queue has this limit unless it sets another.
QUORUM_DEFAULT_DELIVERY_LIMIT = 20


def find_intake_drift(snapshot: Snapshot, expected: Expectation) -> Iterator[Finding]:
    queue = snapshot.queues.get(expected.blueprint.intake_queue)
    subject = f"intake queue {expected.blueprint.intake_queue!r}"
    if queue is None:
        yield Finding(
            severity=Severity.BROKEN_ROUTE,
            subject=subject,
            is_now="does not exist",
            wanted="a durable queue without arguments",
            way_out="run `dlq-handler topology apply`",
        )
        return
    yield from _limits(queue, subject)
    yield from _delivery_limit(queue, subject, snapshot.broker_version)
    if queue.auto_delete or not queue.durable:
        yield Finding(
            severity=Severity.BROKEN_ROUTE if queue.auto_delete else Severity.DRIFT,
            subject=subject,
            is_now="auto-delete" if queue.auto_delete else "not durable",
            wanted="durable and not auto-delete",
            way_out="its dead letters are lost when dlq-handler pauses or the broker restarts; declare it again, "
            "or set dlq_handler.intake.queue to a separate queue",
        )
    yield from _other_takers(snapshot, expected, subject)
    yield from _leftover_bindings(snapshot, expected, subject)


def _limits(queue: QueueFacts, subject: str) -> Iterator[Finding]:
    has_exit = queue.dead_letter_exchange is not None
    where = "into its own dead-letter exchange" if has_exit else "without a trace"
    for limit in ("x-message-ttl", "x-max-length", "x-max-length-bytes"):
        value = queue.least(limit)
        if value is not None:
            yield Finding(
                severity=Severity.DRIFT if has_exit else Severity.BROKEN_ROUTE,
                subject=subject,
                is_now=f"{limit.removeprefix('x-')} {value}",
                wanted="no limit",
                way_out=f"dead letters beyond it are dropped {where}; remove the limit, or set "
                "dlq_handler.intake.queue to a separate queue",
            )


def _delivery_limit(queue: QueueFacts, subject: str, broker_version: str) -> Iterator[Finding]:
    if queue.type != "quorum" or queue.dead_letter_exchange is not None:
        return
    limit = queue.least("x-delivery-limit")
    major = broker_version.partition(".")[0]
    if limit is None and major.isdecimal() and int(major) >= 4:
        limit = QUORUM_DEFAULT_DELIVERY_LIMIT
    if limit is None or limit < 0:
        return
    yield Finding(
        severity=Severity.DRIFT,
        subject=subject,
        is_now=f"quorum queue, delivery limit {limit}, no dead-letter exchange",
        wanted="no delivery limit, or a dead-letter exchange",
        way_out="each pause of dlq-handler requeues dead letters, which counts as a delivery; beyond the limit "
        "they are dropped; set the policy delivery-limit to -1 (RabbitMQ 4), or use a classic queue",
    )


def other_consumers(snapshot: Snapshot, expected: Expectation) -> tuple[str, ...]:
    """Tags of the consumers of the intake queue that are not dlq-handler replicas."""
    return tuple(
        sorted(
            consumer.tag
            for consumer in snapshot.consumers
            if consumer.queue == expected.blueprint.intake_queue
            and not consumer.tag.startswith(expected.own_consumer_tag_prefix)
        )
    )


def _other_takers(snapshot: Snapshot, expected: Expectation, subject: str) -> Iterator[Finding]:
    blueprint = expected.blueprint
    others = other_consumers(snapshot, expected)
    if others:
        yield Finding(
            severity=Severity.DRIFT,
            subject=subject,
            is_now=f"{len(others)} other consumer(s): {listed(others)}",
            wanted="only dlq-handler replicas as consumers",
            way_out="a stock executor publishes no completion event and drops dead letters on a database "
            "error; set dlq_handler.intake.queue to a separate queue, such as attune.dlx.sidecar.queue",
        )
    else:
        yield from _unseen_consumers(snapshot, expected, subject)
    takers = sorted(_also_reached(snapshot, expected))
    if takers:
        yield Finding(
            severity=Severity.DRIFT if STOCK_QUEUE in takers else Severity.NOTE,
            subject=f"exchange {blueprint.dead_letter_exchange!r}",
            is_now=f"also routes workers' dead letters to {listed(takers)}",
            wanted=f"routes them only to {blueprint.intake_queue!r}",
            way_out="each dead letter is delivered twice; unbind that queue, or delete it if it is unused",
        )


def _unseen_consumers(snapshot: Snapshot, expected: Expectation, subject: str) -> Iterator[Finding]:
    """Consumers that the broker counts but the management API does not list."""
    intake = snapshot.queues[expected.blueprint.intake_queue]
    listed_count = sum(consumer.queue == intake.name for consumer in snapshot.consumers)
    unseen = (intake.consumer_count or 0) - listed_count
    if unseen > 0:
        yield Finding(
            severity=Severity.NOTE,
            subject=subject,
            is_now=f"{unseen} unidentified consumer(s)",
            wanted="only dlq-handler replicas as consumers",
            way_out="give dlq-handler's user the tag 'monitoring' and access to the management API to identify them",
        )


def _leftover_bindings(snapshot: Snapshot, expected: Expectation, subject: str) -> Iterator[Finding]:
    """Bindings of workers whose row and queue were deleted while no replica ran. AMQP cannot list bindings."""
    blueprint = expected.blueprint
    bound = {
        binding.routing_key
        for binding in snapshot.bindings_into(blueprint.intake_queue)
        if binding.source == blueprint.dead_letter_exchange
    }
    deleted = sorted(
        worker
        for worker in map(blueprint.workers.owner_of_key, bound)
        if worker is not None
        and worker not in (expected.worker_ids or ())
        and blueprint.workers.queue(worker) not in snapshot.queues
    )
    if deleted and expected.worker_ids is not None:
        yield Finding(
            severity=Severity.NOTE,
            subject=subject,
            is_now=f"bound for {len(deleted)} worker(s) that have neither row nor queue: {listed(map(str, deleted))}",
            wanted="bindings of registered workers only",
            way_out="harmless: no message carries those keys; unbind them by hand if there are too many",
        )


def _also_reached(snapshot: Snapshot, expected: Expectation) -> set[str]:
    blueprint = expected.blueprint
    if blueprint.dead_letter_exchange not in snapshot.exchanges:
        return set()
    reached = {
        queue
        for worker in expected.worker_ids or ()
        for queue in route(
            snapshot, blueprint.dead_letter_exchange, blueprint.workers.routing_key(worker)
        ).certain
    }
    return reached - {blueprint.intake_queue}


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
