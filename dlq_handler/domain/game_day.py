"""A game day: one made-up execution, dispatched the real way to a worker that does not exist. Pure.

Here is what will be made, the dispatch itself, and what was seen of it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid5

from dlq_handler.domain.broker_permissions import WITNESS_QUEUE
from dlq_handler.domain.dead_letter import DISPATCH_MESSAGE_TYPE
from dlq_handler.domain.execution import GAME_DAY_ACTION_REF
from dlq_handler.domain.gate import ClockLook
from dlq_handler.domain.outgoing import NOTICE_NAMESPACE, Notice, envelope, rfc3339
from dlq_handler.domain.story_records import Records
from dlq_handler.domain.topology import Blueprint, bindings_of_worker
from dlq_handler.domain.worker import GAME_DAY_WORKER_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class GameDayPlan:
    blueprint: Blueprint
    notice_key: str
    ttl_ms: int
    limit_seconds: float
    """How long verdict and notice may take from the expiry on."""

    @property
    def queue(self) -> str:
        return self.blueprint.workers.queue(GAME_DAY_WORKER_ID)

    @property
    def routing_key(self) -> str:
        return self.blueprint.workers.routing_key(GAME_DAY_WORKER_ID)

    @property
    def limit(self) -> timedelta:
        """From the dispatch to the notice."""
        return timedelta(milliseconds=self.ttl_ms, seconds=self.limit_seconds)

    def passing(self) -> Iterator[str]:
        """What is made and removed again."""
        blueprint = self.blueprint
        yield (
            f"queue {self.queue!r} (durable, x-message-ttl={self.ttl_ms}, "
            f"x-dead-letter-exchange={blueprint.dead_letter_exchange}), bound to "
            f"{blueprint.executions_exchange!r} with {self.routing_key!r}"
        )
        for binding in bindings_of_worker(blueprint, GAME_DAY_WORKER_ID):
            yield (
                f"a binding of {binding.queue!r} to {blueprint.dead_letter_exchange!r} with "
                f"{binding.routing_key!r}"
            )
        yield (
            f"queue {WITNESS_QUEUE!r} (ours alone, gone with our connection), bound to "
            f"{blueprint.executions_exchange!r} with {self.notice_key!r} and to "
            f"{blueprint.dead_letter_exchange!r} with {self.routing_key!r}"
        )

    def staying(self) -> Iterator[str]:
        """What is left behind as evidence."""
        yield f"one execution (action_ref {GAME_DAY_ACTION_REF}, scheduled without a worker), to be failed by a sidecar"
        yield "its letter on record, and what the host itself keeps of an execution; one notice is published"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedExecution:
    id: int
    updated: datetime
    """What the dispatch carries as the stamp of its attempt."""


def dispatch(execution: CreatedExecution, config: Mapping[str, object]) -> Notice:
    """As Attune's executor dispatches to a worker."""
    name = f"{execution.id}/{rfc3339(execution.updated)}/game-day"
    message_id = uuid5(NOTICE_NAMESPACE, name)
    stamp = rfc3339(execution.updated)
    payload = {
        "execution_id": execution.id,
        "worker_id": GAME_DAY_WORKER_ID,
        "action_ref": GAME_DAY_ACTION_REF,
        "config": config,
        "scheduled_attempt_updated_at": stamp,
    }
    return Notice(
        message_id=message_id,
        correlation_id=message_id,
        execution_id=execution.id,
        is_workflow_task=False,
        body=envelope(DISPATCH_MESSAGE_TYPE, message_id, message_id, payload, stamp),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Puts moments of the process clock on the database's, which dates the verdict."""

    look: ClockLook

    @property
    def error_seconds(self) -> float:
        return (self.look.answered_at - self.look.asked_at) / 2

    def moment(self, process_seconds: float) -> datetime:
        middle = (self.look.asked_at + self.look.answered_at) / 2
        return self.look.database_time + timedelta(seconds=process_seconds - middle)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenNotice:
    at: datetime
    by: str | None
    """The service that signed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that was seen of one game day, from outside, on the database's clock. None: not seen."""

    execution_id: int | None = None
    """None: nothing was begun."""
    dispatched_at: datetime | None = None
    expired_at: datetime | None = None
    """When the dead letter came out of the dead-letter exchange."""
    death_time: datetime | None = None
    """The same by the broker's clock, in whole seconds (x-death)."""
    notice: SeenNotice | None = None
    records: Records | None = None
    """What is on record about the execution, in the host's tables and in ours."""
    consumers: int | None = None
    """Of the intake queue; None: there is no such queue."""
    brake: str | None = None
    """What the brake says of itself; None: it holds nothing up."""
    trouble: str | None = None
    """Why it was not seen to the end; None: it was."""
    clock_error_seconds: float = 0.0
