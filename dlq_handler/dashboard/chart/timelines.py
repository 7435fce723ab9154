"""One thin timeline per worker under the bars, on the same time axis: there, late or gone. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from dlq_handler.dashboard.chart.scale import Window
from dlq_handler.dashboard.words import AVAILABILITIES, State, hm
from dlq_handler.history.history import Segment, Timeline
from dlq_handler.workers.availability import Availability

MOST_TIMELINES = 8

# Downwards within a timeline, in pixels: its label, then its bar.
TIMELINE_PX = 26
_LABEL_BASELINE_PX, _BAR_TOP_PX, _BAR_PX = 11, 16, 6

# How much a worker asks for a timeline, by the worst it was.
_WORST = (Availability.UNAVAILABLE, Availability.LATE, Availability.UNKNOWN, Availability.AVAILABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSegment:
    x: float
    width: float
    state: State
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTimeline:
    worker_id: int
    name: str
    state: State
    word: str
    segments: Sequence[DrawnSegment]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRow:
    """A timeline in its place. All in pixels from the top of the chart."""

    timeline: DrawnTimeline
    label_y: int
    bar_y: int
    bar_height: int
    tick: tuple[int, int]
    """From where to where a mark is drawn in it: over the bar, a little longer, and never through the label."""


def timeline_row(timeline: DrawnTimeline, top: int) -> TimelineRow:
    bar_y = top + _BAR_TOP_PX
    return TimelineRow(
        timeline=timeline,
        label_y=top + _LABEL_BASELINE_PX,
        bar_y=bar_y,
        bar_height=_BAR_PX,
        tick=(bar_y - 1, bar_y + _BAR_PX + 1),
    )


def draw_timelines(
    timelines: Sequence[Timeline], window: Window
) -> tuple[Sequence[DrawnTimeline], str | None]:
    """Those that are or were not ok first, and what is to be said of the rest."""
    seen = [(timeline, _within(timeline, window)) for timeline in timelines]
    by_need = sorted(
        ((timeline, segments) for timeline, segments in seen if segments),
        key=lambda one: (_need(one[1]), one[0].name),
    )
    shown, rest = by_need[:MOST_TIMELINES], by_need[MOST_TIMELINES:]
    return [_drawn(timeline, segments, window) for timeline, segments in shown], _said_of(rest)


def _within(timeline: Timeline, window: Window) -> list[Segment]:
    return [one for one in timeline.segments if one.until > window.since and one.since < window.until]


def _need(segments: Sequence[Segment]) -> tuple[int, int]:
    """Who is ill now comes before who was, and of either the worst."""
    return _WORST.index(segments[-1].availability), min(_WORST.index(one.availability) for one in segments)


def _drawn(timeline: Timeline, segments: Sequence[Segment], window: Window) -> DrawnTimeline:
    state, word = AVAILABILITIES[segments[-1].availability]
    return DrawnTimeline(
        worker_id=timeline.worker_id,
        name=timeline.name,
        state=state,
        word=word,
        segments=[_drawn_segment(timeline.name, one, window) for one in segments],
    )


def _drawn_segment(name: str, one: Segment, window: Window) -> DrawnSegment:
    x, end = window.percent(one.since), window.percent(one.until)
    state, word = AVAILABILITIES[one.availability]
    title = f"{name}: {word} {hm(one.since)}–{hm(one.until)}"
    return DrawnSegment(x=x, width=round(end - x, 2), state=state, title=title)


def _said_of(rest: Sequence[tuple[Timeline, Sequence[Segment]]]) -> str | None:
    """`+188 available`; never "available" for one that is not."""
    counts: dict[str, int] = {}
    for availability in _WORST:
        count = sum(segments[-1].availability is availability for _, segments in rest)
        if count:
            counts[AVAILABILITIES[availability][1]] = count
    return ", ".join(f"+{count} {word}" for word, count in counts.items()) or None
