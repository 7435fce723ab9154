"""What a group of letters is called in a stretch of time. Pure."""

from collections.abc import Mapping, Sequence

from dlq_handler.domain.availability import Availability
from dlq_handler.domain.history import Lane
from dlq_handler.domain.letter_group import Group, title_of


def title_in(group: Group, lanes: Sequence[Lane], names: Mapping[int, str]) -> str:
    """By the worker's name, and by whether it was gone in this time: that is the cause, the expiry its effect."""
    of_worker = [lane for lane in lanes if lane.worker_id == group.worker_id]
    name = names.get(group.worker_id or 0) or next((lane.name for lane in of_worker), None)
    was_gone = any(
        one.availability is Availability.UNAVAILABLE for lane in of_worker for one in lane.segments
    )
    return title_of(group, worker_name=name, was_gone=was_gone)
