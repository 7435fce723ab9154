"""What `topology apply` would change on a broker, as a file, and whether the broker is still as it was then. Pure.

An entry is one exchange, queue or binding, with what was found and what is wanted. A plan is applied only while every
entry is found as it was planned.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from dlq_handler.broker.admin.snapshot import Snapshot
from dlq_handler.broker.pubsub import QueueProperties
from dlq_handler.broker.queue_arguments import queue_arguments
from dlq_handler.host.names import DEAD_LETTER_EXCHANGE, STOCK_BINDING_KEY, STOCK_QUEUE
from dlq_handler.host.owners import SYSTEM_QUEUES, HostService
from dlq_handler.topology.blueprint import Binding, Blueprint, superseded_bindings, wanted_bindings

FORMAT = 1
OURS = "dlq-handler"

ABSENT, PRESENT, UNKNOWN = "absent", "present", "unknown"


class EntryKind(StrEnum):
    EXCHANGE = "exchange"
    QUEUE = "queue"
    BINDING = "binding"


class PlannedAction(StrEnum):
    DECLARE = "declare"
    BIND = "bind"
    UNBIND = "unbind"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    kind: EntryKind
    name: str
    """Of a binding: `exchange -> queue: key`."""
    wanted: str
    found: str
    action: PlannedAction


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyPlan:
    format: int
    broker: str
    """Host, port and vhost, without the credentials."""
    worker_ids: tuple[int, ...]
    entries: tuple[PlanEntry, ...]

    @property
    def changes(self) -> tuple[PlanEntry, ...]:
        return tuple(entry for entry in self.entries if entry.action is not PlannedAction.NONE)


def make_plan(
    snapshot: Snapshot, blueprint: Blueprint, worker_ids: Iterable[int], *, broker: str
) -> TopologyPlan:
    ids = tuple(sorted(worker_ids))
    return TopologyPlan(
        format=FORMAT, broker=broker, worker_ids=ids, entries=tuple(_entries(snapshot, blueprint, ids))
    )


def differences(planned: TopologyPlan, now: TopologyPlan) -> list[str]:
    """Why the plan must not be applied any more, one sentence each; `now` is made for the same workers."""
    if planned.format != now.format:
        return [f"The plan has format {planned.format}; this version reads format {now.format}."]
    if planned.broker != now.broker:
        return [f"The plan is for {planned.broker}; the settings name {now.broker}."]
    before = {(entry.kind, entry.name): entry for entry in planned.entries}
    after = {(entry.kind, entry.name): entry for entry in now.entries}
    return [
        *(
            f"The plan has {kind} {name}, which is not needed now."
            for kind, name in before.keys() - after.keys()
        ),
        *(
            f"The {kind} {name} is needed now, and the plan lacks it."
            for kind, name in after.keys() - before.keys()
        ),
        *(
            f"The {kind} {name} has changed: {before[kind, name].found} when planned, {entry.found} now."
            for (kind, name), entry in after.items()
            if (kind, name) in before and before[kind, name].found != entry.found
        ),
        *(
            f"The settings want {kind} {name} as {entry.wanted}, the plan as {before[kind, name].wanted}."
            for (kind, name), entry in after.items()
            if (kind, name) in before and before[kind, name].wanted != entry.wanted
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRow:
    kind: EntryKind
    name: str
    owner: str
    """The service of the host that declares it, or dlq-handler."""
    wanted: str
    found: str


def list_topology(
    snapshot: Snapshot, blueprint: Blueprint, worker_ids: Iterable[int]
) -> tuple[PlannedRow, ...]:
    """The exchanges, queues and bindings that must exist, without the queues of workers."""
    entries = [
        entry
        for entry in _entries(snapshot, blueprint, tuple(worker_ids))
        if entry.action is not PlannedAction.UNBIND
    ]
    of_host = {exchange.name for exchange in blueprint.exchanges} | {STOCK_QUEUE}
    ours = [
        PlannedRow(
            kind=entry.kind,
            name=entry.name,
            owner=HostService.COMMON if entry.name in of_host else OURS,
            wanted=entry.wanted,
            found=entry.found,
        )
        for entry in entries
    ]
    declared = {entry.name for entry in entries}
    rows = (*ours, *(row for row in _of_services(snapshot, blueprint) if row.name not in declared))
    order = list(EntryKind)
    return tuple(sorted(rows, key=lambda row: order.index(row.kind)))


def _of_services(snapshot: Snapshot, blueprint: Blueprint) -> Iterator[PlannedRow]:
    for queue in SYSTEM_QUEUES:
        # A host may be configured with another dead-letter exchange.
        dlx = None if queue.dlx is None else blueprint.dead_letter_exchange
        exchange = (
            blueprint.dead_letter_exchange if queue.exchange == DEAD_LETTER_EXCHANGE else queue.exchange
        )
        yield PlannedRow(
            kind=EntryKind.QUEUE,
            name=queue.name,
            owner=queue.service,
            wanted=arguments_text(queue_arguments(QueueProperties(ttl_ms=queue.ttl_ms, dlx=dlx))),
            found=queue_state(snapshot, queue.name),
        )
        for key in queue.keys:
            yield PlannedRow(
                kind=EntryKind.BINDING,
                name=binding_name(exchange, queue.name, key),
                owner=queue.service,
                wanted=PRESENT,
                found=binding_state(snapshot, exchange, queue.name, key),
            )


def queue_state(snapshot: Snapshot, name: str) -> str:
    queue = snapshot.queues.get(name)
    return ABSENT if queue is None else arguments_text(queue.arguments)


def exchange_state(snapshot: Snapshot, name: str) -> str:
    exchange = snapshot.exchanges.get(name)
    return ABSENT if exchange is None else exchange.type


def binding_state(snapshot: Snapshot, exchange: str, queue: str, key: str) -> str:
    if queue not in snapshot.queues or exchange not in snapshot.exchanges:
        return ABSENT
    if not snapshot.is_complete:
        # AMQP cannot ask for bindings.
        return UNKNOWN
    bound = any(
        one.destination == queue and not one.to_exchange for one in snapshot.bindings_with_key(exchange, key)
    )
    return PRESENT if bound else ABSENT


def arguments_text(arguments: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(arguments.items())) or "no arguments"


def binding_name(exchange: str, queue: str, key: str) -> str:
    return f"{exchange} -> {queue}: {key}"


def _entries(snapshot: Snapshot, blueprint: Blueprint, worker_ids: Collection[int]) -> Iterator[PlanEntry]:
    made = set()
    for exchange in blueprint.exchanges:
        found = exchange_state(snapshot, exchange.name)
        if found == ABSENT:
            made.add(exchange.name)
        yield _declared(EntryKind.EXCHANGE, exchange.name, exchange.type, found)
    for queue in blueprint.queues:
        found = queue_state(snapshot, queue)
        if found == ABSENT:
            made.add(queue)
        yield _declared(EntryKind.QUEUE, queue, arguments_text(blueprint.arguments_of(queue)), found)
    exchange_name = blueprint.dead_letter_exchange
    wanted = set(wanted_bindings(blueprint, worker_ids))
    is_direct = exchange_state(snapshot, exchange_name) in (ABSENT, "direct")
    if blueprint.shadow is None and is_direct and not made.isdisjoint({STOCK_QUEUE, exchange_name}):
        wanted.add(Binding(queue=STOCK_QUEUE, routing_key=STOCK_BINDING_KEY))
    for binding in sorted(wanted):
        yield _binding(snapshot, exchange_name, binding, wanted=PRESENT, action=PlannedAction.BIND)
    for binding in sorted(superseded_bindings(blueprint, worker_ids)):
        yield _binding(snapshot, exchange_name, binding, wanted=ABSENT, action=PlannedAction.UNBIND)


def _declared(kind: EntryKind, name: str, wanted: str, found: str) -> PlanEntry:
    # What exists is used as it is: arguments and types are fixed when it is declared.
    action = PlannedAction.DECLARE if found == ABSENT else PlannedAction.NONE
    return PlanEntry(kind=kind, name=name, wanted=wanted, found=found, action=action)


def _binding(
    snapshot: Snapshot, exchange: str, binding: Binding, *, wanted: str, action: PlannedAction
) -> PlanEntry:
    found = binding_state(snapshot, exchange, binding.queue, binding.routing_key)
    return PlanEntry(
        kind=EntryKind.BINDING,
        name=binding_name(exchange, binding.queue, binding.routing_key),
        wanted=wanted,
        found=found,
        action=PlannedAction.NONE if found == wanted else action,
    )
