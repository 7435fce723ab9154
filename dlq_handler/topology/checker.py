"""Check the topology of a live broker. Reads only: by the management API, or by AMQP without it."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dlq_handler.broker.admin import queue_probe
from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.snapshot import ExchangeFacts, QueueFacts, Snapshot
from dlq_handler.broker.queue_arguments import TYPE_ARGUMENT
from dlq_handler.errors import Unavailable
from dlq_handler.host.owners import SERVICE_QUEUES
from dlq_handler.topology.check import CheckedTopology, check, unknown_topology
from dlq_handler.topology.drift import Expectation


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyReport:
    """`limits` says in words what could not be read, and is empty when everything was."""

    topology: CheckedTopology
    limits: tuple[str, ...] = ()


async def check_topology(
    admin: AdminConnection, api: ManagementApi, expected: Expectation, *, may_probe: bool = True
) -> TopologyReport:
    """Raises `Unavailable` when the broker itself does not answer.

    Without the management API queues are probed if `may_probe`, else the topology is unknown. Probes leave several
    error lines per queue in the broker's log: they are for a person who asks once.
    """
    await admin.open()
    limits: list[str] = []
    if expected.worker_ids is None:
        limits.append(
            "the database does not answer: every worker's queue counts as that of a registered worker"
        )
    try:
        snapshot = await api.snapshot(consumers_of=expected.blueprint.intake_queue)
        snapshot = await _with_intake_count(admin, snapshot, expected)
    except Unavailable as error:
        if not may_probe:
            return TopologyReport(topology=unknown_topology(expected), limits=(str(error), *limits))
        limits.append(
            f"{error}; only arguments of queues can be read (by AMQP), neither bindings nor policies; "
            f"dlq_handler.broker.management_url says where it is"
        )
        snapshot = await probe_snapshot(admin, expected)
    # Thousands of queues are seconds of computing; heartbeats of the connection must go on meanwhile.
    topology = await asyncio.to_thread(check, snapshot, expected)
    return TopologyReport(topology=topology, limits=tuple(limits))


async def _with_intake_count(admin: AdminConnection, snapshot: Snapshot, expected: Expectation) -> Snapshot:
    """The API hides the consumers of other users from a plain user; their number shows that there are some."""
    name = expected.blueprint.intake_queue
    counts = await queue_probe.count_queue(admin, name) if name in snapshot.queues else None
    if counts is not None:
        snapshot.queues[name] = replace(snapshot.queues[name], consumer_count=counts.consumers)
    return snapshot


async def probe_snapshot(admin: AdminConnection, expected: Expectation) -> Snapshot:
    """What AMQP alone can show: which of the queues that are known by name exist, and with what arguments."""
    blueprint = expected.blueprint
    names: Iterable[str] = (
        *map(blueprint.workers.queue, sorted(expected.worker_ids or ())),
        *blueprint.queues,
        *SERVICE_QUEUES,
    )
    queues = [queue for name in names if (queue := await probe_queue(admin, name)) is not None]
    exchanges = {blueprint.dead_letter_exchange}.union(
        exchange for queue in queues if (exchange := queue.dead_letter_exchange)
    )
    return Snapshot(
        exchanges=[
            facts for name in sorted(exchanges) if (facts := await probe_exchange(admin, name)) is not None
        ],
        queues=queues,
        is_complete=False,
    )


async def probe_exchange(admin: AdminConnection, name: str) -> ExchangeFacts | None:
    if not await queue_probe.exchange_exists(admin, name):
        return None
    exchange_type = await queue_probe.probe_exchange_type(admin, name, "direct")
    return ExchangeFacts(name=name, type=exchange_type or "direct", policy_is_known=False)


async def probe_queue(admin: AdminConnection, name: str) -> QueueFacts | None:
    counts = await queue_probe.count_queue(admin, name)
    if counts is None:
        return None
    probed = await queue_probe.probe_queue(admin, name)
    if probed is None:
        return QueueFacts(name=name, policy_is_known=False, consumer_count=counts.consumers)
    return QueueFacts(
        name=name,
        type=str(probed.arguments.get(TYPE_ARGUMENT, "classic")),
        durable=probed.durable,
        auto_delete=probed.auto_delete,
        arguments=probed.arguments,
        policy_is_known=False,
        consumer_count=counts.consumers,
    )
