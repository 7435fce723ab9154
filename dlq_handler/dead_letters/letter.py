"""A dead letter: one message that was dead-lettered, with the fields that a decision needs."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from dlq_handler.host.names import DISPATCH_MESSAGE_TYPE
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.topology.blueprint import RETIRED_QUEUE
from dlq_handler.topology.canary import CANARY_MESSAGE_TYPE, CANARY_QUEUE

# The broker's reasons, and one for a message that was not dead-lettered: dlq-handler drained it from the queue of an
# unavailable or retired worker, or received it from the retired queue.
RESCUED = "rescued"
DEATH_REASONS = ("expired", "rejected", "maxlen", "delivery_limit", RESCUED)
UNKNOWN_REASON = "none"

LETTER_OVERHEAD_BYTES = 2048
"""Memory of a dead letter beside its body and headers: about twenty fields and their strings, rounded up."""


class ParseProblem(StrEnum):
    """Why a dead letter is unreadable. Ids of groups contain these values: a value is never renamed."""

    PROPERTIES_UNDECODABLE = "properties_undecodable"
    BODY_NOT_UTF8 = "body_not_utf8"
    BODY_NOT_JSON = "body_not_json"
    BODY_NESTED_TOO_DEEPLY = "body_nested_too_deeply"
    BODY_NOT_AN_ENVELOPE = "body_not_an_envelope"
    """JSON, but not an object."""
    MESSAGE_TYPE_MISSING = "message_type_missing"
    PAYLOAD_MISSING = "payload_missing"
    EXECUTION_ID_MISSING = "execution_id_missing"
    EXECUTION_ID_NULL = "execution_id_null"
    EXECUTION_ID_NOT_INTEGER = "execution_id_not_integer"
    """Of another type, or beyond 64 bits."""
    LARGE_BODY_WITHOUT_EXECUTION_ID = "large_body_without_execution_id"
    """The body is too large to be parsed whole, and the beginning that is read does not contain the field."""
    LARGE_BODY_WITHOUT_MESSAGE_TYPE = "large_body_without_message_type"
    FIELDS_REFUSED = "fields_refused"
    """The database refuses the fields."""
    PARSER_ERROR = "parser_error"
    """An error in the code that reads dead letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """One entry of x-death, as far as it could be read."""

    queue: str | None
    reason: str
    time: datetime | None
    count: int
    exchange: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainedFrom:
    """The worker whose queue a message was drained from, as it was read at that time."""

    worker_id: int | None
    """None: the queue is of a flow without a worker."""
    heartbeat_age_seconds: float | None
    """None: the worker has no row, or its row no heartbeat."""
    other_consumers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """What is known of the retired worker or flow that a message was sent to."""

    is_archive: bool = False
    """The contents of its queue are archived, not decided."""
    has_own_queue: bool | None = None
    """Of a message from the retired queue: whether the worker's own queue existed just before the decision. The same
    message may be in that queue too. None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """The fields of one dead letter. With a `parse_error` the other fields hold what could be read."""

    key: str
    message_id: str | None
    correlation_id: str | None
    message_type: str | None
    execution_id: int | None
    worker_id: int | None
    attempt_updated_at: datetime | None
    """`scheduled_attempt_updated_at`: the attempt of the execution that this message dispatched."""
    death: Death | None
    first_death_queue: str | None
    exchange: str
    routing_key: str
    redelivered: bool
    body: bytes
    """At most the configured number of bytes, to be shown; never parsed again."""
    body_size: int
    action_ref: str | None = None
    parse_error: str | None = None
    """Why it is unreadable, as text for a person; None: it could be read."""
    parse_problem: ParseProblem | None = None
    """The kind of `parse_error`. Not on record: a dead letter gets its group once, before it is recorded."""
    headers: str = "{}"
    """As received, as JSON text that the database accepts, to be shown; never parsed again."""
    deliveries: int = 0
    """Earlier deliveries from the intake queue; only quorum queues count them."""
    drained_from: DrainedFrom | None = None
    """Set exactly for a message that was drained from its worker's queue."""
    retired: Retired | None = None
    """Set for a message from a queue that is being retired, and from the retired queue. Not on record."""

    @property
    def reason(self) -> str:
        return self.death.reason if self.death else UNKNOWN_REASON

    @property
    def queue(self) -> str | None:
        """The queue of its last death."""
        return self.death.queue if self.death else None

    @property
    def died_at(self) -> datetime | None:
        return self.death.time if self.death else None

    @property
    def is_from_retired_queue(self) -> bool:
        """Also of a record, from which `retired` is missing."""
        return self.queue == RETIRED_QUEUE and self.reason == RESCUED

    @property
    def held_bytes(self) -> int:
        return len(self.body) + len(self.headers) + LETTER_OVERHEAD_BYTES

    @property
    def order_key(self) -> int | None:
        """Dead letters of one execution are decided in the order of their delivery."""
        return self.execution_id

    @property
    def is_canary(self) -> bool:
        return self.canary_id is not None

    @property
    def canary_id(self) -> UUID | None:
        """None: this is no canary. A canary has the type, the id and the fields of one, and died only in its queue.

        A canary is acknowledged without a record, and any sender can write the type into a body or forge a header. So
        every mark must be there; a dead letter with some of them is recorded. The id may be unknown to the database:
        old canaries are deleted, and sidecars with other schemas send theirs through the same queue.
        """
        is_marked = self.parse_error is None and self.message_type == CANARY_MESSAGE_TYPE
        if not is_marked or self.execution_id is not None or self.action_ref is not None:
            return None
        if not self.queue == self.first_death_queue == CANARY_QUEUE:
            return None
        try:
            return UUID(self.message_id or "")
        except ValueError:
            return None


def without_fields(
    *,
    key: str,
    body: bytes,
    body_size: int,
    redelivered: bool,
    parse_error: str | None,
    parse_problem: ParseProblem | None,
) -> DeadLetter:
    """A dead letter whose fields could not be read, or are refused by the database."""
    return DeadLetter(
        key=key,
        message_id=None,
        correlation_id=None,
        message_type=None,
        execution_id=None,
        worker_id=None,
        attempt_updated_at=None,
        death=None,
        first_death_queue=None,
        exchange="",
        routing_key="",
        redelivered=redelivered,
        body=body,
        body_size=body_size,
        parse_error=parse_error,
        parse_problem=parse_problem,
    )


def without_texts(letter: DeadLetter, names: WorkerQueueNames) -> DeadLetter:
    """Numbers, times, constants and the name of a worker's queue: enough to decide it later."""
    first_queue = letter.first_death_queue
    is_of_worker = first_queue is not None and names.owner_of(first_queue) is not None
    is_dispatch = letter.message_type == DISPATCH_MESSAGE_TYPE
    death = letter.death and replace(
        letter.death,
        # A constant. Without it the dead letter would be decided as one that its worker cannot have any more.
        queue=RETIRED_QUEUE if letter.is_from_retired_queue else None,
        reason=letter.reason if letter.reason in DEATH_REASONS else UNKNOWN_REASON,
        exchange=None,
    )
    return replace(
        without_fields(
            key=letter.key,
            body=letter.body,
            body_size=letter.body_size,
            redelivered=letter.redelivered,
            parse_error=None,
            parse_problem=None,
        ),
        message_type=DISPATCH_MESSAGE_TYPE if is_dispatch else None,
        execution_id=letter.execution_id,
        worker_id=letter.worker_id,
        attempt_updated_at=letter.attempt_updated_at,
        death=death,
        first_death_queue=first_queue if is_of_worker else None,
        deliveries=letter.deliveries,
    )
