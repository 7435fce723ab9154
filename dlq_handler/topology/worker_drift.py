"""Drift of workers' queues: a missing or different TTL, and settings that delete messages without a dead letter.

Pure. Queues with the same drift share one finding, since a fleet can have thousands of queues.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from dlq_handler.broker.admin.snapshot import QueueFacts, Snapshot
from dlq_handler.topology.finding import Expectation, Finding, Severity, queues_as_subject


def find_worker_queue_drift(snapshot: Snapshot, expected: Expectation) -> Iterator[Finding]:
    alike: defaultdict[Finding, list[str]] = defaultdict(list)
    owner_of = expected.blueprint.workers.owner_of
    for queue in snapshot.queues.values():
        if owner_of(queue.name) is None:
            continue
        for finding in _worker_queue(queue, expected, is_complete=snapshot.is_complete):
            alike[finding].append(queue.name)
    for finding, names in alike.items():
        yield replace(finding, subject=queues_as_subject(names))
    yield from _missing(snapshot, expected)


def _worker_queue(queue: QueueFacts, expected: Expectation, *, is_complete: bool) -> Iterator[Finding]:
    ttl_ms = queue.ttl_ms
    policy_may_differ = not (is_complete and queue.policy_is_known)
    if ttl_ms is None:
        yield _finding(
            Severity.NOTE if policy_may_differ else expected.broken_route,
            "no x-message-ttl" + (" argument; a policy may set one" if policy_may_differ else ""),
            f"x-message-ttl={expected.ttl_ms}",
            "messages for an unavailable worker never expire; set a message-ttl by policy, or let the "
            "queue be drained and declared again",
        )
    elif ttl_ms != expected.ttl_ms:
        yield _finding(
            Severity.DRIFT,
            f"x-message-ttl={ttl_ms}",
            f"x-message-ttl={expected.ttl_ms} (message_queue.rabbitmq.worker_queue_ttl_ms)",
            f"nothing breaks: Attune ignores that setting, and {max(ttl_ms, expected.ttl_ms)}, the longer of "
            f"the two, is used; set it to {ttl_ms} to match the queue. Arguments are fixed at "
            "creation: another TTL needs the queue drained, deleted and declared again",
        )
    if queue.auto_delete:
        yield _finding(
            expected.broken_route,
            "auto-delete",
            "not auto-delete",
            "it is deleted with its last consumer, and a deleted queue dead-letters nothing; declare it "
            "again without auto-delete",
        )
    expires_ms = queue.least("x-expires")
    if expires_ms is not None and (ttl_ms is None or expires_ms <= ttl_ms):
        yield _finding(
            expected.broken_route,
            f"x-expires={expires_ms}",
            "no x-expires, or one above the TTL",
            "an unused queue is deleted before its messages die, and a deleted queue dead-letters nothing",
        )
    if not queue.durable:
        yield _finding(
            Severity.DRIFT,
            "not durable",
            "durable",
            "a restart of the broker loses its messages without a dead letter; declare it again as durable",
        )
    if queue.type not in {"classic", "stream"}:
        yield _finding(
            Severity.NOTE,
            f"type {queue.type!r}",
            "type 'classic', as Attune declares it",
            "it works; make sure that Attune's own declare does (a vhost's default queue type makes it so)",
        )


def _finding(severity: Severity, is_now: str, wanted: str, way_out: str) -> Finding:
    return Finding(severity=severity, subject="", is_now=is_now, wanted=wanted, way_out=way_out)


def _missing(snapshot: Snapshot, expected: Expectation) -> Iterator[Finding]:
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
