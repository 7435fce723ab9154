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
    """Ours by its type, and because it died in our queue and nowhere else.

    The type alone is a word that anybody can write into a body: such a letter would vanish without a record. That its
    id is known to the database is not asked. Probes are swept, and sidecars of other schemas send some through the same
    queue: put on record, each of them would be a letter that nobody can do anything about.
    """
    died_in_our_queue = letter.queue == letter.first_death_queue == CANARY_QUEUE
    return letter.flaw is None and letter.message_type == CANARY_MESSAGE_TYPE and died_in_our_queue


def probe_id_of(canary: DeadLetter) -> UUID | None:
    """None when somebody else made it up."""
    try:
        return UUID(canary.message_id or "")
    except ValueError:
        return None
