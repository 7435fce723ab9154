"""Settings of the queue lifecycle, and the blueprints of flows."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import NoDecode

from dlq_handler.lifecycle.flow import StopStep
from dlq_handler.lifecycle.flow_blueprint import BlueprintInvalid, FlowBlueprint, QueueTemplate
from dlq_handler.options import AmqpName, Listed, OwnSection, QueueName, Seconds, in_words

BLUEPRINTS_WANTED = (
    "an object of blueprints by name, each {params, worker, flow, shared}; a queue is {name, exchange, keys, ttl_ms, "
    "dlx, type, contents}"
)


class OrphanOptions(OwnSection):
    """Queues of workers that are gone."""

    enabled: bool = False
    """Retire orphaned worker queues automatically. When false, `dlq-handler queues orphans` lists them and
    `dlq-handler queues retire` retires them."""
    after_seconds: Annotated[Seconds, Field(ge=60, le=31_536_000)] = 86_400
    """Age of a worker's heartbeat from which its queues count as orphaned, in seconds."""


class LifecycleOptions(OwnSection):
    """Flows: queues that dlq-handler creates, stops and deletes."""

    enabled: bool = False
    """Start and stop flows, and retire worker queues. Needs more rights: `dlq-handler grants --feature lifecycle`. When
    false, no queue is declared, bound or deleted."""
    interval_seconds: Annotated[Seconds, Field(ge=0.1, le=3600)] = 2
    """Interval between two checks of the flows, in seconds."""
    consumer_wait_seconds: Annotated[Seconds, Field(ge=0, le=86_400)] = 60
    """Time after which a stop that waits for consumers to leave is reported, in seconds. It continues to wait: no
    consumer is disconnected."""
    settle_seconds: Annotated[Seconds, Field(ge=0, le=3600)] = 10
    """Time between the unbinding of a queue and its deletion, in seconds. A consumer that has left may still hold
    messages, which return to the queue when its channel closes."""
    delete_tries: Annotated[int, Field(ge=1, le=20)] = 5
    """Number of attempts to delete a queue, 2 seconds apart and growing. Then the queue is listed as leaked, the stop
    completes, and a later check tries again."""
    archive_limit: Annotated[int, Field(ge=0, le=1_000_000)] = 1000
    """Maximum number of messages of one stop that are recorded as `archived`. The others are counted."""
    pause_after: Literal["signalled", "idle", "rerouted", "drained", "deleted"] | None = None
    """Step of a stop after which it waits until this setting is removed; null means no pause."""
    orphans: OrphanOptions = Field(default_factory=OrphanOptions)

    @property
    def pause_step(self) -> StopStep | None:
        return None if self.pause_after is None else StopStep(self.pause_after)


class QueueOptions(OwnSection):
    """A queue of a blueprint. `{param}` in its name or a key is replaced by the value of the parameter."""

    name: QueueName
    exchange: AmqpName
    keys: Annotated[tuple[str, ...], Listed, Field(min_length=1)]
    ttl_ms: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    dlx: AmqpName | None = None
    type: Literal["classic", "quorum"] = "classic"
    contents: Literal["decide", "archive"] = "decide"


class BlueprintOptions(OwnSection):
    """The queues of a kind of flow."""

    params: Annotated[tuple[str, ...], Listed] = ()
    worker: str | None = None
    """The parameter that is the id of a worker, if a flow of this kind belongs to one."""
    flow: tuple[QueueOptions, ...] = ()
    shared: tuple[QueueOptions, ...] = ()

    def as_blueprint(self, name: str) -> FlowBlueprint:
        """Raises `BlueprintInvalid`."""
        return FlowBlueprint(
            name=name,
            params=self.params,
            worker_param=self.worker,
            flow=tuple(_template(queue) for queue in self.flow),
            shared=tuple(_template(queue) for queue in self.shared),
        )


def _template(queue: QueueOptions) -> QueueTemplate:
    return QueueTemplate(
        name=queue.name,
        exchange=queue.exchange,
        keys=queue.keys,
        ttl_ms=queue.ttl_ms,
        dlx=queue.dlx,
        type=queue.type,
        contents=queue.contents,
    )


def _read_blueprints(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError(f"{BLUEPRINTS_WANTED}; in a variable a JSON object of such objects") from None
    if not isinstance(value, Mapping):
        raise ValueError(BLUEPRINTS_WANTED)  # noqa: TRY004  pydantic turns only a ValueError into a problem
    return {str(name): _read_blueprint(str(name), one) for name, one in value.items()}


def _read_blueprint(name: str, value: Any) -> BlueprintOptions:
    """Raises ValueError that names the queue and the key: there may be many."""
    try:
        read = BlueprintOptions.model_validate(value)
        read.as_blueprint(name)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        # A misspelt key is also missing: its misspelling explains more.
        first = min(found, key=lambda one: one["type"] != "extra_forbidden")
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise ValueError(f"a blueprint without the unknown key {place} (blueprint {name!r})") from None
        raise ValueError(f"a blueprint {name!r} in which {place or 'all'} is right: {first['msg']}") from None
    except BlueprintInvalid as error:
        raise ValueError(f"a blueprint that can be used: {error}") from None
    return read


Blueprints = Annotated[
    dict[str, BlueprintOptions], NoDecode, BeforeValidator(_read_blueprints), in_words(BLUEPRINTS_WANTED)
]
