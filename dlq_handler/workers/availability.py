"""Whether a worker is available, by the age of its heartbeat. Pure: ages are by the database's clock, and arguments.

`unavailable` is the one that decisions rest on, `is_unavailable` decides it; the others are for people.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from dlq_handler.host.worker import AvailabilityPolicy, Worker, is_unavailable

# Hosts never delete the rows of their workers.
HISTORY_AFTER_SECONDS = 86_400.0


def is_history(worker: Worker) -> bool:
    """Silent for a day, or for ever: nothing is dispatched to it any more."""
    age = worker.heartbeat_age_seconds
    return age is None or age > HISTORY_AFTER_SECONDS


class Availability(StrEnum):
    AVAILABLE = "available"
    LATE = "late"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    availability: Availability
    explanation: str
    gone_since: datetime | None = None
    """When its last heartbeat became too old, which is later than that heartbeat; None: it is not unavailable."""


def standing_of(worker: Worker, *, watched_seconds: float, policy: AvailabilityPolicy) -> Standing:
    """`watched_seconds`: for how long we have been able to see heartbeats without a break."""
    age = worker.heartbeat_age_seconds
    if age is None:
        return Standing(availability=Availability.UNKNOWN, explanation="it never sent a heartbeat")
    if is_unavailable(worker, link_age_seconds=watched_seconds, policy=policy):
        explanation = f"its last heartbeat is older than {policy.unavailable_after_seconds:g} s"
        limit = timedelta(seconds=policy.unavailable_after_seconds)
        gone_since = worker.last_heartbeat + limit if worker.last_heartbeat else None
        return Standing(availability=Availability.UNAVAILABLE, explanation=explanation, gone_since=gone_since)
    if age > policy.unavailable_after_seconds:
        explanation = (
            f"we have watched for {watched_seconds:.0f} s only, of {policy.unavailable_after_seconds:g}"
        )
        return Standing(availability=Availability.UNKNOWN, explanation=explanation)
    if age > policy.late_after_seconds:
        explanation = f"its last heartbeat is older than {policy.late_after_seconds:g} s"
        return Standing(availability=Availability.LATE, explanation=explanation)
    return Standing(availability=Availability.AVAILABLE, explanation="it reports")


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A worker that was found unavailable, look after look, with one and the same last heartbeat."""

    worker: Worker
    first_look: float
    last_look: float
    """The process clock at the first and the last of these looks."""

    def is_confirmed(self, *, after_seconds: float) -> bool:
        return self.last_look - self.first_look >= after_seconds


def absences(before: Mapping[int, Absence], unavailable: Iterable[Worker], now: float) -> dict[int, Absence]:
    """What one more look adds. A heartbeat between two looks is a sign of life, however old it is by the second."""
    absent = {}
    for worker in unavailable:
        known = before.get(worker.id)
        is_same = known is not None and known.worker.last_heartbeat == worker.last_heartbeat
        first_look = known.first_look if known and is_same else now
        absent[worker.id] = Absence(worker=worker, first_look=first_look, last_look=now)
    return absent
