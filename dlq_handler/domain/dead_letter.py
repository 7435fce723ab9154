"""A dead letter: one message that died in some queue, with the fields a verdict needs and its proof."""

from dataclasses import dataclass
from datetime import datetime

from dlq_handler.domain.execution import GAME_DAY_ACTION_REF
from dlq_handler.domain.worker import GAME_DAY_WORKER_ID

# The broker's own reasons, and ours for a message that did not die but was taken out of the queue of a worker that is
# gone.
RESCUED = "rescued"
DEATH_REASONS = ("expired", "rejected", "maxlen", "delivery_limit", RESCUED)
UNKNOWN_REASON = "none"

DISPATCH_MESSAGE_TYPE = "ExecutionRequested"
REQUEST_KEY = "execution.requested"
"""The routing key of a request to the scheduler, whose message_type is that of a dispatch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """One entry of x-death, as far as it could be read."""

    queue: str | None
    reason: str
    time: datetime | None
    count: int
    exchange: str | None = None
    routing_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescue:
    """What was seen of the worker out of whose queue a message was taken, when it was taken."""

    worker_id: int
    heartbeat_age_seconds: float
    other_consumers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """What was read of one letter. `flaw` set = it could not be read; the other fields hold what could."""

    key: str
    message_id: str | None
    correlation_id: str | None
    message_type: str | None
    execution_id: int | None
    worker_id: int | None
    stamp: datetime | None
    """`scheduled_attempt_updated_at`: which attempt of the execution this letter dispatched."""
    death: Death | None
    first_death_queue: str | None
    exchange: str
    routing_key: str
    redelivered: bool
    body: bytes
    """At most the configured number of bytes, for people; never parsed again."""
    body_size: int
    action_ref: str | None = None
    flaw: str | None = None
    """Why the letter is unreadable, in words; None when it was read."""
    headers: str = "{}"
    """As received, as JSON text that the database takes: for people, never read again."""
    deliveries: int = 0
    """Earlier deliveries of it from the intake queue, where the broker counts them: on quorum queues."""
    rescue: Rescue | None = None
    """Set exactly for a message that did not die, but was taken out of its worker's queue."""

    @property
    def is_game_day(self) -> bool:
        """Judged and recorded as any other, but nobody's work: it counts in no metric of letters and in no ratio."""
        return self.worker_id == GAME_DAY_WORKER_ID and self.action_ref == GAME_DAY_ACTION_REF

    @property
    def reason(self) -> str:
        return self.death.reason if self.death else UNKNOWN_REASON

    @property
    def queue(self) -> str | None:
        """The queue it died in last."""
        return self.death.queue if self.death else None

    @property
    def died_at(self) -> datetime | None:
        return self.death.time if self.death else None
