"""What a group of letters is called in a stretch of time. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from dlq_handler.dead_letters.group import Group, title_of
from dlq_handler.history.history import Timeline
from dlq_handler.workers.availability import Availability

# Where the TTL is short a message expires before its worker is called gone: that takes 90 s, unless told otherwise.
CALLED_GONE_WITHIN = timedelta(minutes=2)


def waited(expired_at: datetime, *, ttl_seconds: float) -> tuple[datetime, datetime]:
    """When a worker that was gone is the cause: what expired had waited for one TTL (of the workers' queues)."""
    return expired_at - timedelta(seconds=ttl_seconds), expired_at + CALLED_GONE_WITHIN


def title_in(
    group: Group,
    timelines: Sequence[Timeline],
    names: Mapping[int, str],
    *,
    ttl_seconds: float,
    last_at: datetime | None = None,
) -> str:
    """By the worker's name, and by whether it was gone: that is the cause, the expiry its effect.

    Gone around the newest letter (`last_at`, if a stretch of time was asked for), and not just some time: so it is one
    name, however far back the page looks on which it stands: `timelines` begin one TTL before its letters.
    """
    of_worker = [timeline for timeline in timelines if timeline.worker_id == group.worker_id]
    name = names.get(group.worker_id or 0) or next((timeline.name for timeline in of_worker), None)
    since, until = waited(last_at or group.last_at, ttl_seconds=ttl_seconds)
    was_gone = any(
        one.availability is Availability.UNAVAILABLE and one.since <= until and one.until >= since
        for timeline in of_worker
        for one in timeline.segments
    )
    return title_of(group, worker_name=name, was_gone=was_gone)
