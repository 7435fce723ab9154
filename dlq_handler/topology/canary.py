"""The canary: a test message that expires on purpose, with the routing key of a real worker. Pure.

It is published to an exchange of dlq-handler's own, expires in a queue of its own, and reaches the dead-letter exchange
with that worker's key. So it takes the same binding as the worker's dead letters, and never touches the worker's queue.
The intake recognizes it by its type and by the queue where it died (`DeadLetter.canary_id`), and only records that it
was received.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from dlq_handler.host.messages import envelope, rfc3339

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
