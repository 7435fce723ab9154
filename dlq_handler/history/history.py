"""Availability of workers over time, and gaps in observation. Pure.

A gap is shown as a gap. Shown as "as before" or as "nothing happened", it would hide exactly the time that an operator
asks about.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dlq_handler.history.event import WORKER_AVAILABLE, WORKER_LATE, WORKER_UNAVAILABLE
from dlq_handler.workers.availability import Availability

QUARTER = timedelta(seconds=15)
"""Resolution of gaps. The recorder writes several times in each quarter of a minute."""
QUARTERS = 4
# An observed quarter is recorded after its end; until then a missing record means nothing.
_WRITTEN_WITHIN = timedelta(seconds=15)

_THERE = (Availability.AVAILABLE, Availability.LATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    since: datetime
    until: datetime
    availability: Availability


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One worker's part of the chart."""

    worker_id: int
    name: str
    segments: tuple[Segment, ...]
    """In order, without overlaps; a gap is time in which it was not registered, or not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A worker's availability from a moment on; None: it is not registered any more."""

    worker_id: int
    name: str
    at: datetime
    availability: Availability | None


def gaps_between(
    observed: Mapping[datetime, int],
    *,
    first: datetime | None,
    since: datetime,
    until: datetime,
    now: datetime,
) -> list[Span]:
    """Quarters of minutes of a window without an observation, from the first observation ever on.

    `observed`: minute → its observed quarters, one bit each. The quarter that has just begun is not recorded yet.
    """
    if first is None:
        return []
    end = min(until, quarter_of(now - _WRITTEN_WITHIN))
    gaps: list[Span] = []
    quarter = max(quarter_of(since), first)
    while quarter < end:
        minute = quarter.replace(second=0)
        if not observed.get(minute, 0) & 1 << quarter.second // 15:
            begins, ends = max(quarter, since), min(quarter + QUARTER, until)
            if gaps and gaps[-1].until == begins:
                begins = gaps.pop().since
            gaps.append(Span(since=begins, until=ends))
        quarter += QUARTER
    return gaps


def with_ongoing_gap(
    gaps: Sequence[Span], *, since: datetime, known_at: datetime, now: datetime
) -> list[Span]:
    """With an outage in progress, whose first seconds are not on record yet.

    `since`: when it was first observed. `known_at`: when `gaps` were read from the record, which holds until then:
    another replica may have consumed.
    """
    recorded_until = quarter_of(known_at - _WRITTEN_WITHIN)
    if gaps and gaps[-1].until >= recorded_until:
        return [*gaps[:-1], Span(since=gaps[-1].since, until=max(gaps[-1].until, now))]
    start = max(since, recorded_until)
    return [*gaps, Span(since=start, until=now)] if start < now else list(gaps)


def timelines_of(
    changes: Sequence[Change], *, gaps: Sequence[Span], since: datetime, until: datetime
) -> list[Timeline]:
    """`changes` in order of time, `until` not after now. In a gap the availability is unknown."""
    by_worker: dict[int, list[Change]] = {}
    for change in changes:
        by_worker.setdefault(change.worker_id, []).append(change)
    timelines = []
    for worker_id, own in sorted(by_worker.items()):
        ends = [*(change.at for change in own[1:]), until]
        known = [
            Segment(since=max(change.at, since), until=min(end, until), availability=change.availability)
            for change, end in zip(own, ends, strict=True)
            if change.availability is not None and end > since and change.at < until
        ]
        segments = _joined(piece for segment in known for piece in _seen_through(segment, gaps))
        if segments:
            timelines.append(Timeline(worker_id=worker_id, name=own[-1].name, segments=segments))
    return timelines


def change_of(before: Availability | None, seen: Availability) -> Availability | None:
    """The change to record after an observation; None: no change.

    Unknown does not end an absence. Otherwise each restart of a replica would report an unavailable worker again.
    """
    if seen is before or (seen is Availability.UNKNOWN and before is Availability.UNAVAILABLE):
        return None
    return seen


def event_of(before: Availability | None, now: Availability) -> str | None:
    """The event for a change; None: no event. The first observation of a worker is not an event."""
    if before is None:
        return None
    if now is Availability.UNAVAILABLE:
        return WORKER_UNAVAILABLE
    if before is Availability.UNAVAILABLE and now in _THERE:
        return WORKER_AVAILABLE
    return WORKER_LATE if now is Availability.LATE else None


def _seen_through(segment: Segment, gaps: Sequence[Span]) -> Iterable[Segment]:
    at = segment.since
    for span in gaps:
        since, until = max(span.since, at), min(span.until, segment.until)
        if since >= until:
            continue
        if at < since:
            yield Segment(since=at, until=since, availability=segment.availability)
        yield Segment(since=since, until=until, availability=Availability.UNKNOWN)
        at = until
    if at < segment.until:
        yield Segment(since=at, until=segment.until, availability=segment.availability)


def _joined(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    joined: list[Segment] = []
    for segment in segments:
        last = joined[-1] if joined else None
        if last and last.until == segment.since and last.availability is segment.availability:
            joined[-1] = Segment(since=last.since, until=segment.until, availability=last.availability)
        else:
            joined.append(segment)
    return tuple(joined)


def quarter_of(moment: datetime) -> datetime:
    return moment.replace(second=moment.second - moment.second % 15, microsecond=0)


Workers = Mapping[int, tuple[str, Availability]]
"""One observation of the fleet: name and availability of each worker."""
