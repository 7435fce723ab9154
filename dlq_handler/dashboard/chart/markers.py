"""Vertical lines and bands of the chart: workers, brake, safety gate, restarts, gaps in consumption, and the first dead
letter one TTL after a worker became unavailable. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from dlq_handler.dashboard.chart.labels import LabelRequest
from dlq_handler.dashboard.chart.scale import Window
from dlq_handler.dashboard.words import hm, hms
from dlq_handler.history.event import HistoryEvent
from dlq_handler.history.history import Span, Timeline
from dlq_handler.text import in_units
from dlq_handler.workers.availability import Availability

# Kind → (its class, what is said of one, what is said of several, its weight). A kind that is missing is no mark: that
# a worker is late, its timeline shows.
_KINDS: Mapping[str, tuple[str, str, str, int]] = {
    "worker.unavailable": ("bad", "{subject} unavailable", "{count} workers unavailable", 0),
    "worker.available": ("ok", "{subject} back", "{count} workers back", 2),
    "brake.tripped": ("bad", "brake tripped", "brake tripped", 0),
    "brake.released": ("ok", "brake released", "brake released", 1),
    "gate.closed": ("bad", "gate closed", "gate closed", 1),
    "gate.opened": ("ok", "gate open", "gate open", 3),
    "replica.started": ("plain", "replica started", "{count} replicas started", 3),
    "replica.stopped": ("plain", "replica stopped", "{count} replicas stopped", 3),
}

# What was dispatched right after the last heartbeat expires first. A worker is called late some heartbeats after that
# one, and the next dispatch may come a little later: both are within these.
_EARLIER, _LATER = timedelta(seconds=150), timedelta(seconds=120)
_PAUSES = {"brake.tripped": "paused by the brake", "gate.closed": "paused by the safety gate"}
# A gap begins with the quarter of a minute in which consuming ended, or when an observation finds it.
_PAUSED_EARLIER, _PAUSED_LATER = timedelta(seconds=30), timedelta(seconds=30)
# A bar of a quarter of an hour does not show when its first dead letter arrived.
_FINEST_BAR_SECONDS = 60


def marker_labels(markers: Iterable[HistoryEvent], window: Window) -> Iterator[LabelRequest]:
    """Those of one kind in one bar are one mark: a fleet that goes at once must not be a hundred lines."""
    together: dict[tuple[int, str], list[HistoryEvent]] = defaultdict(list)
    for one in markers:
        bar = window.bar_of(one.at)
        if bar is not None and one.kind in _KINDS:
            together[bar, one.kind].append(one)
    for (_, kind), found in together.items():
        css, of_one, of_many, weight = _KINDS[kind]
        subjects = {one.subject for one in found}
        said = of_one if len(subjects) == 1 else of_many
        words = said.format(subject=found[0].subject or "worker", count=len(subjects))
        at = window.percent(found[0].at)
        short = f"{of_many.format(count=len(subjects))} {hm(found[0].at)}"
        yield LabelRequest(
            start=at, end=at, text=f"{words} {hm(found[0].at)}", short=short, kind=css, weight=weight
        )


def gap_labels(
    gaps: Sequence[Span], markers: Sequence[HistoryEvent], window: Window, *, is_outage: bool
) -> Iterator[LabelRequest]:
    """A gap is not a time without dead letters. One in progress (`is_outage`) is never left out for older ones."""
    for number, span in enumerate(gaps):
        start, end = window.percent(span.since), window.percent(span.until)
        if end > start:
            weight = -1 if is_outage and number == len(gaps) - 1 else 1
            text = f"{gap_name(span, markers)} {between(span)}"
            yield LabelRequest(start=start, end=end, text=text, kind="gap", weight=weight)


def gap_name(gap: Span, markers: Iterable[HistoryEvent]) -> str:
    """dlq-handler's own pauses are not outages: the brake and the safety gate close the consumer on purpose."""
    for one in markers:
        if gap.since - _PAUSED_EARLIER <= one.at <= gap.since + _PAUSED_LATER and one.kind in _PAUSES:
            return _PAUSES[one.kind]
    return "not connected"


def between(span: Span) -> str:
    """With seconds where minutes would show no difference. A time at the right edge too: on a page of the night "now"
    would be the morning.
    """
    shown = hms if hm(span.since) == hm(span.until) else hm
    return f"{shown(span.since)}–{shown(span.until)}"


def first_letter_labels(
    markers: Iterable[HistoryEvent],
    timelines: Sequence[Timeline],
    letters: Mapping[int, Mapping[str, int]],
    window: Window,
    *,
    ttl_seconds: float,
) -> Iterator[LabelRequest]:
    """Cause and effect: what waited for a worker begins to expire one TTL after it went."""
    if window.bar_seconds > _FINEST_BAR_SECONDS:
        return
    ttl = timedelta(seconds=ttl_seconds)
    labeled: set[int] = set()
    for one in markers:
        if one.kind != "worker.unavailable":
            continue
        due = _went_at(one, timelines) + ttl
        bar = _first_expired(letters, window, due - _EARLIER, due + _LATER)
        if bar is None or bar in labeled:
            continue
        at = window.start_of(bar)
        if at < one.at:
            # Where the TTL is short both fall into one minute: drawn first, the effect would stand before its cause.
            continue
        labeled.add(bar)
        x = window.percent(at)
        terse = f"first letter {hm(at)}"
        short = f"{terse}, one TTL later"
        text = f"{terse}, one TTL ({in_units(ttl_seconds)}) later"
        yield LabelRequest(start=x, end=x, text=text, short=short, terse=terse, kind="effect", weight=1)


def _went_at(event: HistoryEvent, timelines: Sequence[Timeline]) -> datetime:
    """Since when it is late: it is late before it is unavailable."""
    for timeline in timelines:
        if timeline.name == event.subject:
            for before, after in pairwise(timeline.segments):
                is_this = (
                    after.availability is Availability.UNAVAILABLE and after.since <= event.at < after.until
                )
                if is_this and before.availability is Availability.LATE:
                    return before.since
    return event.at


def _first_expired(
    letters: Mapping[int, Mapping[str, int]], window: Window, since: datetime, until: datetime
) -> int | None:
    expired: Sequence[int] = sorted(bar for bar, reasons in letters.items() if reasons.get("expired"))
    for bar in expired:
        if since <= window.start_of(bar) <= until:
            # Where letters expired all along, none is the first.
            return None if bar - 1 in expired else bar
    return None
