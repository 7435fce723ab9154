"""What a group of letters is called in a stretch of time. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from dlq_handler.domain.availability import Availability
from dlq_handler.domain.history import Lane
from dlq_handler.domain.letter_group import Group, title_of

# What expired had waited before that for one TTL (5 minutes as the host has it); and where the TTL is short, it expires
# before its worker is called gone.
AROUND = timedelta(minutes=10)


def title_in(
    group: Group, lanes: Sequence[Lane], names: Mapping[int, str], *, last_at: datetime | None = None
) -> str:
    """By the worker's name, and by whether it was gone: that is the cause, the expiry its effect.

    Gone around the newest letter (`last_at`, if a stretch of time was asked for), and not just some time: so it is one
    name, however far back the page looks on which it stands.
    """
    of_worker = [lane for lane in lanes if lane.worker_id == group.worker_id]
    name = names.get(group.worker_id or 0) or next((lane.name for lane in of_worker), None)
    newest = last_at or group.last_at
    was_gone = any(
        one.availability is Availability.UNAVAILABLE
        and one.since <= newest + AROUND
        and one.until >= newest - AROUND
        for lane in of_worker
        for one in lane.segments
    )
    return title_of(group, worker_name=name, was_gone=was_gone)
