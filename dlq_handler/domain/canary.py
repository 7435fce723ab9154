"""The canary: a message of ours that dies on purpose, with the routing key of a real worker. Pure.

It is published to an exchange of our own, expires in a queue of our own, and comes to the dead-letter exchange with
that worker's key. So it takes the very binding that the worker's letters take, and never touches the worker's queue.
Whoever takes it from the intake queue knows it by its type and by where it died, writes down that it came, and puts
nothing on record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from dlq_handler.domain.dead_letter import DeadLetter
from dlq_handler.domain.outgoing import envelope, rfc3339

CANARY_EXCHANGE = "dlq_handler.canary"
CANARY_QUEUE = "dlq_handler.canary.queue"
CANARY_MESSAGE_TYPE = "DlqHandlerCanary"

# Whatever goes wrong with their expiry, no more of them ever pile up on the host's broker.
MOST_QUEUED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryPlan:
    """How the queue is declared. It sets no key of its own for what dies: the worker's must be kept."""

    dead_letter_exchange: str
    ttl_ms: int

    @property
    def queue_arguments(self) -> Mapping[str, int | str]:
        return {
            "x-dead-letter-exchange": self.dead_letter_exchange,
            "x-message-ttl": self.ttl_ms,
            "x-max-length": MOST_QUEUED,
        }


def canary_body(probe_id: UUID, *, worker_id: int, queue: str, sent_by: str, now: datetime) -> bytes:
    """In Attune's envelope: a stock consumer that meets it reads the type, and skips it."""
    payload = {"worker_id": worker_id, "queue": queue, "sent_by": sent_by}
    return envelope(CANARY_MESSAGE_TYPE, probe_id, probe_id, payload, rfc3339(now))


def is_canary(letter: DeadLetter) -> bool:
    """A canary has the type, the id and the fields of one, and its only death was in the canary queue.

    A canary is acknowledged without a record, and any sender can write the type into a body or forge a header. So every
    mark must be there; a dead letter with some of them is recorded. The id may be unknown to the database: old canaries
    are deleted, and sidecars with other schemas send theirs through the same queue.
    """
    is_marked = letter.flaw is None and letter.message_type == CANARY_MESSAGE_TYPE
    if not is_marked or letter.execution_id is not None or letter.action_ref is not None:
        return False
    return letter.queue == letter.first_death_queue == CANARY_QUEUE and probe_id_of(letter) is not None


def probe_id_of(canary: DeadLetter) -> UUID | None:
    """None when somebody else made it up."""
    try:
        return UUID(canary.message_id or "")
    except ValueError:
        return None
