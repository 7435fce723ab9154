"""Drift of the intake queue: limits that drop dead letters, and other consumers.

Pure.
"""

from collections.abc import Iterator

from dlq_handler.broker.admin.snapshot import QueueFacts, Snapshot
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.topology.finding import Expectation, Finding, Severity, listed
from dlq_handler.topology.routing import route
from dlq_handler.topology.walk import DEAD_LETTER_EXCHANGE

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
    has_exit = queue.text(DEAD_LETTER_EXCHANGE) is not None
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
    if queue.type != "quorum" or queue.text(DEAD_LETTER_EXCHANGE) is not None:
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
