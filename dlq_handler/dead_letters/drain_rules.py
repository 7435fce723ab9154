"""When a gone worker's queue may be emptied, and what a message out of it looks like as a letter. Pure."""

import hashlib
from dataclasses import replace
from datetime import datetime

from dlq_handler.dead_letters.letter import RESCUED, DeadLetter, Death, Rescue
from dlq_handler.host.worker import Worker


def why_not_rescue(gone: Worker, found: Worker | None, *, other_consumers: int) -> str | None:
    """`gone` as its absence was confirmed, `found` as it is now; None: its queue may be emptied."""
    if found is None:
        # Its executions have lost their worker by that, so no letter would be of their current attempt.
        return "its row is gone"
    if found.last_heartbeat is None or found.last_heartbeat != gone.last_heartbeat:
        return "it has reported again"
    if other_consumers > 0:
        return "its queue has a consumer"
    return None


def rescued(letter: DeadLetter, rescue: Rescue, *, queue: str, now: datetime) -> DeadLetter:
    """The message as if it had died in `queue` just now.

    Its key does not depend on the moment: one that comes back because its acknowledgement was lost is the same letter.
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
            routing_keys=(letter.routing_key,),
        ),
        first_death_queue=letter.first_death_queue or queue,
        rescue=rescue,
    )
