"""Messages that were not dead-lettered, as dead letters: drained from a queue, or received from the retired queue.

Their keys depend on no time: a message that returns because its acknowledgement was lost has the same key. And they
depend on the queue: of two copies of a message, one in its worker's queue and one in the retired queue, each has a
record of its own. Pure.
"""

import hashlib
from dataclasses import replace
from datetime import datetime

from dlq_handler.dead_letters.letter import RESCUED, DeadLetter, Death, DrainedFrom, Retired
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.topology.blueprint import RETIRED_QUEUE


def as_drained(
    letter: DeadLetter,
    drained_from: DrainedFrom,
    *,
    queue: str,
    now: datetime,
    retired: Retired | None = None,
) -> DeadLetter:
    """The message as if it had been dead-lettered from `queue` now. `retired`: set when the queue is being retired."""
    return replace(_as_rescued(letter, queue=queue, now=now), drained_from=drained_from, retired=retired)


def as_retired(letter: DeadLetter, names: WorkerQueueNames) -> DeadLetter:
    """The message as it is read from the retired queue. Without a time of death until `as_checked`."""
    worker_id = letter.worker_id if letter.worker_id is not None else names.owner_of_key(letter.routing_key)
    rescued = _as_rescued(letter, queue=RETIRED_QUEUE, now=None)
    return replace(rescued, worker_id=worker_id, retired=Retired())


def as_checked(letter: DeadLetter, *, has_own_queue: bool | None, now: datetime) -> DeadLetter:
    """A message from the retired queue just before its decision."""
    death = None if letter.death is None else replace(letter.death, time=now)
    return replace(letter, death=death, retired=Retired(has_own_queue=has_own_queue))


def _as_rescued(letter: DeadLetter, *, queue: str, now: datetime | None) -> DeadLetter:
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
    )
