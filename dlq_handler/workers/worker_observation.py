"""The observation of a worker, and what one more check adds to it. Pure: no clock, no I/O.

One check proves little: a heartbeat may be late, a message may have been acknowledged a moment ago, and after a restart
of the broker dlq-handler may reconnect before the workers do. So a decision needs two checks. They are kept in the
database, where a new leader finds what the old one observed.
"""

from dataclasses import dataclass
from datetime import datetime

from dlq_handler.host.worker import AvailabilityPolicy, QueueObservation, Worker, is_unavailable

KEPT_SECONDS = 600.0
"""A check that found no consumer counts for at most this time if later checks learn nothing about the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerObservation:
    """The last check of one worker, with the time of the first one that found the same."""

    worker_id: int
    observed_at: datetime
    """Time of the last check. While `unconsumed_since` is kept from an earlier check: time of the earlier one."""
    last_heartbeat: datetime | None = None
    unavailable_since: datetime | None = None
    """The first check that found it unavailable, or its row deleted, with this last heartbeat."""
    empty_since: datetime | None = None
    """The check before this one that found nothing ready and nothing held in its queue; this one, if none did."""
    unconsumed_since: datetime | None = None
    """In the same way: its queue had no consumer, or did not exist."""


def observe_again(
    worker_id: int,
    before: WorkerObservation | None,
    *,
    worker: Worker | None,
    queue: QueueObservation | None,
    is_queue_known: bool,
    now: datetime,
    watched_seconds: float,
    availability: AvailabilityPolicy,
    confirm_after_seconds: float,
) -> WorkerObservation:
    """`worker` None: its row was deleted. `queue` None: there is none, if `is_queue_known`."""
    heartbeat = worker.last_heartbeat if worker else None
    unavailable_since = None
    if worker is None or is_unavailable(worker, link_age_seconds=watched_seconds, policy=availability):
        # A heartbeat between two checks is a sign of life, however old it is by the second one.
        is_same = before is not None and before.last_heartbeat == heartbeat
        unavailable_since = (before.unavailable_since if before and is_same else None) or now
    empty_since = unconsumed_since = None
    if is_empty(queue):
        since = before.empty_since if before else None
        empty_since = _first_of_two(before, since, confirm_after_seconds) or now
    observed_at = now
    if is_queue_known and is_unattended(queue):
        since = before.unconsumed_since if before else None
        unconsumed_since = _first_of_two(before, since, confirm_after_seconds) or now
    elif not is_queue_known and before is not None and _is_recent(before, now):
        # About a missing queue the broker is asked twice in ten minutes. The checks between the two learn nothing, and
        # must not discard the first answer. Publishes of dlq-handler have to show that the broker worked all the time.
        unconsumed_since = before.unconsumed_since
        observed_at = now if unconsumed_since is None else before.observed_at
    return WorkerObservation(
        worker_id=worker_id,
        observed_at=observed_at,
        last_heartbeat=heartbeat,
        unavailable_since=unavailable_since,
        empty_since=empty_since,
        unconsumed_since=unconsumed_since,
    )


def is_empty(queue: QueueObservation | None) -> bool:
    """Known to hold nothing, neither ready nor unacked."""
    return queue is not None and queue.unacked is not None and queue.ready + queue.unacked == 0


def is_unattended(queue: QueueObservation | None) -> bool:
    """It has no consumer, or does not exist (any more)."""
    return queue is None or queue.consumers == 0


def _is_recent(before: WorkerObservation, now: datetime) -> bool:
    return (now - before.observed_at).total_seconds() <= KEPT_SECONDS


def _first_of_two(
    before: WorkerObservation | None, since: datetime | None, confirm_after_seconds: float
) -> datetime | None:
    """The earlier one of the two checks that this one completes; None: no check before it has found the same.

    When the check before has completed two already, it is the first of the next two. Counted from the oldest, "empty
    since ten o'clock" would be evidence about a message that was sent at half past ten.
    """
    if before is None or since is None:
        return None
    is_complete = (before.observed_at - since).total_seconds() >= confirm_after_seconds
    return before.observed_at if is_complete else since
