"""When the queue of an unavailable worker may be drained, and how its messages become dead letters. Pure."""

import hashlib
from dataclasses import replace
from datetime import datetime

from dlq_handler.dead_letters.letter import RESCUED, DeadLetter, Death, Rescue
from dlq_handler.host.worker import Worker


def why_not_drain(unavailable: Worker, found: Worker | None, *, other_consumers: int) -> str | None:
    """None: the queue may be drained. `unavailable`: the worker as it was confirmed; `found`: as it is now."""
    if found is None:
        # Deleting it has changed its executions, so no message is of their current attempt.
        return "its row was deleted"
    if found.last_heartbeat is None or found.last_heartbeat != unavailable.last_heartbeat:
        return "it has sent a heartbeat"
    if other_consumers > 0:
        return "its queue has a consumer"
    return None


def as_drained(letter: DeadLetter, rescue: Rescue, *, queue: str, now: datetime) -> DeadLetter:
    """The message as if it had been dead-lettered from `queue` now.

    Its key does not depend on the time: a message that returns because its acknowledgement was lost has the same key.
    """
    return replace(
        letter,
        key=hashlib.sha256(f"{RESCUED}\x1f{queue}\x1f{letter.key}".encode()).hexdigest(),
        death=Death(
            queue=queue,
            reason=RESCUED,
            time=now,
            count=1,
            exchange=letter.exchange,
        ),
        first_death_queue=letter.first_death_queue or queue,
        rescue=rescue,
    )
