"""What is known of a stretch of time: who was there, and when nobody looked. Pure.

Time in which nobody looked is told as such. Taken for "as before", or for "nothing happened", it would lie in exactly
the hour that somebody asks about.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dlq_handler.history.event import WORKER_BACK, WORKER_GONE, WORKER_LATE
from dlq_handler.workers.availability import Availability

MINUTE = timedelta(minutes=1)
# That a minute was seen is written by the next look after it; until then it says nothing.
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
class Lane:
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


def unseen(
    seen: Iterable[datetime], *, first: datetime | None, since: datetime, until: datetime, now: datetime
) -> list[Span]:
    """The minutes of a window in which nobody looked, from the first that anybody ever did.

    `seen` holds those in which somebody did. The minute that has just begun is not over, so it says nothing yet, and of
    the one before it somebody may still have to write.
    """
    if first is None:
        return []
    minutes = set(seen)
    end = min(until, _minute_of(now - _WRITTEN_WITHIN))
    spans: list[Span] = []
    minute = max(_minute_of(since), first)
    while minute < end:
        if minute not in minutes:
            since_, until_ = max(minute, since), min(minute + MINUTE, until)
            if spans and spans[-1].until == since_:
                since_ = spans.pop().since
            spans.append(Span(since=since_, until=until_))
        minute += MINUTE
    return spans


def still_unseen(blind: Sequence[Span], *, since: datetime, known_at: datetime, now: datetime) -> list[Span]:
    """With an outage that goes on: its first minutes are on no record yet, and are no minutes without letters.

    `since`: when it was first seen. `known_at`: when the record was read that `blind` is from; what it tells holds, for
    somebody else may have looked.
    """
    told_until = _minute_of(known_at - _WRITTEN_WITHIN)
    if blind and blind[-1].until >= told_until:
        return [*blind[:-1], Span(since=blind[-1].since, until=max(blind[-1].until, now))]
    start = max(since, told_until)
    return [*blind, Span(since=start, until=now)] if start < now else list(blind)


def lanes_of(
    changes: Sequence[Change], *, blind: Sequence[Span], since: datetime, until: datetime
) -> list[Lane]:
    """`changes` in order of time, `until` not after now. Over blind time nobody can tell."""
    by_worker: dict[int, list[Change]] = {}
    for change in changes:
        by_worker.setdefault(change.worker_id, []).append(change)
    lanes = []
    for worker_id, own in sorted(by_worker.items()):
        ends = [*(change.at for change in own[1:]), until]
        known = [
            Segment(since=max(change.at, since), until=min(end, until), availability=change.availability)
            for change, end in zip(own, ends, strict=True)
            if change.availability is not None and end > since and change.at < until
        ]
        segments = _joined(piece for segment in known for piece in _seen_through(segment, blind))
        if segments:
            lanes.append(Lane(worker_id=worker_id, name=own[-1].name, segments=segments))
    return lanes


def change_of(before: Availability | None, seen: Availability) -> Availability | None:
    """What goes on record after a look; None: nothing new.

    That we cannot tell ends no absence: after each restart of ours a worker that is gone would go once more.
    """
    if seen is before or (seen is Availability.UNKNOWN and before is Availability.UNAVAILABLE):
        return None
    return seen


def event_of(before: Availability | None, now: Availability) -> str | None:
    """The news in a change; None: there is none. How a worker is found at the first look is no news."""
    if before is None:
        return None
    if now is Availability.UNAVAILABLE:
        return WORKER_GONE
    if before is Availability.UNAVAILABLE and now in _THERE:
        return WORKER_BACK
    return WORKER_LATE if now is Availability.LATE else None


def _seen_through(segment: Segment, blind: Sequence[Span]) -> Iterable[Segment]:
    at = segment.since
    for span in blind:
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


def _minute_of(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


Workers = Mapping[int, tuple[str, Availability]]
"""What a look found: each worker's name, and whether it is there."""
