"""Blueprints of flows: which queues a flow has, with parameters in their names and keys. Pure.

A queue of a flow has a parameter in its name, so that no two flows share it; it is deleted when the flow stops. A
shared queue has none, and is never deleted. A key with a parameter leads to this flow alone, so after a stop the
retired queue takes its messages. A key without one is a broadcast: it is only unbound.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from dlq_handler.broker.pubsub import QueueProperties, QueueTopic, QueueType
from dlq_handler.host.owners import SYSTEM_QUEUES, OwnedQueue, worker_queues
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.text import INT64
from dlq_handler.topology.blueprint import RETIRED_QUEUE
from dlq_handler.topology.canary import CANARY_QUEUE

WORKER_BLUEPRINT = "worker"
WORKER_PARAM = "id"

MOST_QUEUES = 50
"""Of one flow: all of them are created in one transaction, within the time of one call."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAME_WANTED = "must be 1 to 100 letters, digits and . _ -, starting with a letter or digit"
_PARAM = re.compile(r"[a-z][a-z0-9_]{0,62}")
_PLACE = re.compile(r"\{([^{}]*)\}")
_AMQP_BYTES = 255


class Contents(StrEnum):
    """What happens to the messages in a queue when its flow stops."""

    DECIDE = "decide"
    """They are decided as dead letters."""
    ARCHIVE = "archive"
    """They are recorded as `archived`, up to a limit."""


class BlueprintInvalid(Exception):
    """The blueprint or the parameters cannot be used; the text says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTemplate:
    """A queue of a blueprint. `{param}` in its name and keys stands for the value of a parameter."""

    name: str
    exchange: str
    keys: tuple[str, ...]
    ttl_ms: int | None = None
    dlx: str | None = None
    type: str = QueueType.CLASSIC
    contents: str = Contents.DECIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowQueue:
    """A queue of a flow, as it is declared."""

    name: str
    exchange: str
    own_keys: tuple[str, ...]
    """They lead to this queue alone."""
    broadcast_keys: tuple[str, ...] = ()
    ttl_ms: int | None = None
    dlx: str | None = None
    type: QueueType = QueueType.CLASSIC
    contents: Contents = Contents.DECIDE

    @property
    def properties(self) -> QueueProperties:
        return QueueProperties(ttl_ms=self.ttl_ms, dlx=self.dlx, type=self.type)

    @property
    def own_topics(self) -> tuple[str, ...]:
        return tuple(str(QueueTopic(exchange=self.exchange, routing_key=key)) for key in self.own_keys)

    @property
    def topics(self) -> tuple[str, ...]:
        keys = (*self.own_keys, *self.broadcast_keys)
        return tuple(str(QueueTopic(exchange=self.exchange, routing_key=key)) for key in keys)

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "exchange": self.exchange,
            "own_keys": list(self.own_keys),
            "broadcast_keys": list(self.broadcast_keys),
            "ttl_ms": self.ttl_ms,
            "dlx": self.dlx,
            "type": self.type.value,
            "contents": self.contents.value,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Self:
        """Ignores fields of a newer version."""
        ttl_ms, dlx, own, broadcast = (
            value.get(name) for name in ("ttl_ms", "dlx", "own_keys", "broadcast_keys")
        )
        return cls(
            name=str(value["name"]),
            exchange=str(value["exchange"]),
            own_keys=tuple(str(key) for key in own) if isinstance(own, list) else (),
            broadcast_keys=tuple(str(key) for key in broadcast) if isinstance(broadcast, list) else (),
            ttl_ms=ttl_ms if isinstance(ttl_ms, int) else None,
            dlx=None if dlx is None else str(dlx),
            type=QueueType(str(value["type"])),
            contents=Contents(str(value["contents"])),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowQueues:
    """What a blueprint becomes with the values of its parameters."""

    flow: tuple[FlowQueue, ...]
    shared: tuple[FlowQueue, ...]
    worker_id: int | None
    """None: a flow of this blueprint belongs to no worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowBlueprint:
    """Raises `BlueprintInvalid` where it is inconsistent."""

    name: str
    params: tuple[str, ...]
    flow: tuple[QueueTemplate, ...]
    shared: tuple[QueueTemplate, ...] = ()
    worker_param: str | None = None

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise BlueprintInvalid(f"blueprint {self.name!r}: {problem}")

    def expand(self, params: Mapping[str, str]) -> FlowQueues:
        """Raises `BlueprintInvalid` for missing, unknown or invalid values."""
        _check_values(self, params)
        queues = FlowQueues(
            flow=tuple(_fill(template, params) for template in self.flow),
            shared=tuple(_fill(template, params) for template in self.shared),
            worker_id=None if self.worker_param is None else _worker_id(self, params),
        )
        for queue in queues.flow:
            if queue.name in RESERVED_QUEUES or queue.name.startswith("amq."):
                raise BlueprintInvalid(
                    f"blueprint {self.name!r}: queue {queue.name!r} belongs to Attune or dlq-handler and is never "
                    "deleted; choose other values for the parameters"
                )
        return queues


RESERVED_QUEUES = frozenset(queue.name for queue in SYSTEM_QUEUES) | {RETIRED_QUEUE, CANARY_QUEUE}
"""Queues that no flow may have: the stop of a flow deletes its queues."""


def worker_blueprint(names: WorkerQueueNames | None = None) -> FlowBlueprint:
    """The shipped blueprint: a worker's queues, argument for argument as a stock worker declares them."""
    executions, *others = worker_queues(names)
    return FlowBlueprint(
        name=WORKER_BLUEPRINT,
        params=(WORKER_PARAM,),
        worker_param=WORKER_PARAM,
        flow=(
            _as_template(executions, Contents.DECIDE),
            *(_as_template(queue, Contents.ARCHIVE) for queue in others),
        ),
    )


def blueprint_of(name: str, blueprints: Mapping[str, FlowBlueprint]) -> FlowBlueprint:
    """Raises `BlueprintInvalid` for an unknown name."""
    found = blueprints.get(name)
    if found is None:
        known = ", ".join(sorted(blueprints))
        raise BlueprintInvalid(
            f"unknown blueprint {name!r}: must be one of {known}; add others under dlq_handler.blueprints"
        )
    return found


def check_flow_id(flow_id: str) -> None:
    """Raises `BlueprintInvalid`."""
    if not _NAME.fullmatch(flow_id):
        raise BlueprintInvalid(f"Invalid flow id {flow_id!r}: {_NAME_WANTED}")


def _as_template(queue: OwnedQueue, contents: Contents) -> QueueTemplate:
    return QueueTemplate(
        name=queue.name,
        exchange=queue.exchange,
        keys=queue.keys,
        ttl_ms=queue.ttl_ms,
        dlx=queue.dlx,
        contents=contents,
    )


def _problems(blueprint: FlowBlueprint) -> Iterator[str]:
    if not _NAME.fullmatch(blueprint.name):
        yield f"its name {_NAME_WANTED}"
    for param in blueprint.params:
        if not _PARAM.fullmatch(param):
            yield f"parameter {param!r} must be a lower-case letter, then lower-case letters, digits and _"
    if len(set(blueprint.params)) < len(blueprint.params):
        yield "a parameter is listed twice"
    if not blueprint.flow:
        yield "it has no queue under flow; a blueprint needs at least one"
    if len(blueprint.flow) + len(blueprint.shared) > MOST_QUEUES:
        yield f"it has more than {MOST_QUEUES} queues"
    if blueprint.worker_param is not None and blueprint.worker_param not in blueprint.params:
        yield f"worker is {blueprint.worker_param!r}, which is not in params ({_listed(blueprint.params)})"
    names = [template.name for template in (*blueprint.flow, *blueprint.shared)]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"queue {name!r} is listed twice"
    yield from _problems_of_queues(blueprint)


def _problems_of_queues(blueprint: FlowBlueprint) -> Iterator[str]:
    used: set[str] = set()
    for template in (*blueprint.flow, *blueprint.shared):
        for text in (template.name, *template.keys):
            if set("{}") & set(_PLACE.sub("", text)):
                yield f"{text!r} has a brace without its partner"
            used |= set(places := _PLACE.findall(text))
            if unknown := sorted(set(places) - set(blueprint.params)):
                yield (
                    f"{text!r} has the unknown parameter {unknown[0]!r}; params are {_listed(blueprint.params)}"
                )
        if not template.keys:
            yield f"queue {template.name!r} has no key; a queue needs at least one"
    for template in blueprint.flow:
        if not _PLACE.search(template.name):
            yield (
                f"queue {template.name!r} under flow has no parameter in its name, so two flows would share it; add "
                "one, or list the queue under shared"
            )
    for template in blueprint.shared:
        if _PLACE.search(template.name) or any(_PLACE.search(key) for key in template.keys):
            yield f"queue {template.name!r} under shared has a parameter; list it under flow"
    if unused := sorted(set(blueprint.params) - used):
        yield f"parameter {unused[0]!r} is used in no queue"


def _check_values(blueprint: FlowBlueprint, params: Mapping[str, str]) -> None:
    wanted = _listed(blueprint.params)
    if unknown := sorted(set(params) - set(blueprint.params)):
        raise BlueprintInvalid(f"unknown parameter {unknown[0]!r}: blueprint {blueprint.name!r} has {wanted}")
    if missing := sorted(set(blueprint.params) - set(params)):
        raise BlueprintInvalid(
            f"missing parameter {missing[0]!r}: blueprint {blueprint.name!r} needs {wanted}; "
            f"give it as --param {missing[0]}=VALUE"
        )
    for name, value in params.items():
        if not _NAME.fullmatch(value):
            raise BlueprintInvalid(f"Invalid value {value!r} for parameter {name!r}: {_NAME_WANTED}")


def _worker_id(blueprint: FlowBlueprint, params: Mapping[str, str]) -> int:
    value = params[blueprint.worker_param or ""]
    # One spelling for each worker: `07` would be another queue name for the same row.
    if not re.fullmatch(r"[1-9][0-9]{0,18}", value) or int(value) not in INT64:
        raise BlueprintInvalid(
            f"Invalid value {value!r} for parameter {blueprint.worker_param!r}: must be the id of a worker"
        )
    return int(value)


def _fill(template: QueueTemplate, params: Mapping[str, str]) -> FlowQueue:
    def filled(text: str) -> str:
        text = _PLACE.sub(lambda found: params[found[1]], text)
        if len(text.encode()) > _AMQP_BYTES:
            raise BlueprintInvalid(f"{text!r} is longer than {_AMQP_BYTES} bytes")
        return text

    return FlowQueue(
        name=filled(template.name),
        exchange=template.exchange,
        own_keys=tuple(filled(key) for key in template.keys if _PLACE.search(key)),
        broadcast_keys=tuple(key for key in template.keys if not _PLACE.search(key)),
        ttl_ms=template.ttl_ms,
        dlx=template.dlx,
        type=QueueType(template.type),
        contents=Contents(template.contents),
    )


def _listed(params: Collection[str]) -> str:
    return ", ".join(params) or "none"
