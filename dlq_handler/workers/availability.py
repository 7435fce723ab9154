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


def is_silent_for_a_day(worker: Worker) -> bool:
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
    unavailable_since: datetime | None = None
    """As `began_at` says; None: it is not unavailable."""


def standing_of(worker: Worker, *, watched_seconds: float, policy: AvailabilityPolicy) -> Standing:
    """`watched_seconds`: for how long this replica has been able to read heartbeats without a break."""
    age = worker.heartbeat_age_seconds
    if age is None:
        return Standing(availability=Availability.UNKNOWN, explanation="it never sent a heartbeat")
    if is_unavailable(worker, link_age_seconds=watched_seconds, policy=policy):
        explanation = f"its last heartbeat is older than {policy.unavailable_after_seconds:g} s"
        return Standing(
            availability=Availability.UNAVAILABLE,
            explanation=explanation,
            unavailable_since=began_at(worker, Availability.UNAVAILABLE, policy),
        )
    if age > policy.unavailable_after_seconds:
        needed = policy.unavailable_after_seconds
        explanation = f"dlq-handler has watched for {watched_seconds:.0f} s only, of {needed:g}"
        return Standing(availability=Availability.UNKNOWN, explanation=explanation)
    if age > policy.late_after_seconds:
        explanation = f"its last heartbeat is older than {policy.late_after_seconds:g} s"
        return Standing(availability=Availability.LATE, explanation=explanation)
    return Standing(availability=Availability.AVAILABLE, explanation="it reports")


def began_at(worker: Worker, availability: Availability, policy: AvailabilityPolicy) -> datetime | None:
    """Since when a worker is available, late or unavailable: the one moment that every surface shows.

    By its last heartbeat and the limits, not by the observation that noticed it. None: the heartbeat does not date it.
    """
    if worker.last_heartbeat is None:
        return None
    match availability:
        case Availability.AVAILABLE:
            return worker.last_heartbeat
        case Availability.LATE:
            return worker.last_heartbeat + timedelta(seconds=policy.late_after_seconds)
        case Availability.UNAVAILABLE:
            return worker.last_heartbeat + timedelta(seconds=policy.unavailable_after_seconds)
        case Availability.UNKNOWN:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A worker that was found unavailable by each of several checks, with one and the same last heartbeat."""

    worker: Worker
    first_check: float
    last_check: float
    """The process clock at the first and the last of these checks."""

    def is_confirmed(self, *, after_seconds: float) -> bool:
        return self.last_check - self.first_check >= after_seconds


def absences(before: Mapping[int, Absence], unavailable: Iterable[Worker], now: float) -> dict[int, Absence]:
    """What one more check adds. A heartbeat between two checks is a sign of life, however old it is by the second."""
    absent = {}
    for worker in unavailable:
        known = before.get(worker.id)
        is_same = known is not None and known.worker.last_heartbeat == worker.last_heartbeat
        first_check = known.first_check if known and is_same else now
        absent[worker.id] = Absence(worker=worker, first_check=first_check, last_check=now)
    return absent
