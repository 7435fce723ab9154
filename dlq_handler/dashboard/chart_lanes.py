"""One thin lane per worker under the bars, on the same time axis: there, late or gone. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from dlq_handler.dashboard.chart_scale import Window
from dlq_handler.dashboard.words import AVAILABILITIES, State, hm
from dlq_handler.history.history import Lane, Segment
from dlq_handler.workers.availability import Availability

MOST_LANES = 8

# Downwards within a lane, in pixels: its label, then its bar.
LANE_PX = 26
_LABEL_BASELINE_PX, _BAR_TOP_PX, _BAR_PX = 11, 16, 6

# How much a worker asks for a lane, by the worst it was.
_WORST = (Availability.UNAVAILABLE, Availability.LATE, Availability.UNKNOWN, Availability.AVAILABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSegment:
    x: float
    width: float
    state: State
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLane:
    worker_id: int
    name: str
    state: State
    word: str
    segments: Sequence[DrawnSegment]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRow:
    """A lane in its place. All in pixels from the top of the chart."""

    lane: DrawnLane
    label_y: int
    bar_y: int
    bar_height: int
    tick: tuple[int, int]
    """From where to where a mark is drawn in it: over the bar, a little longer, and never through the label."""


def lane_row(lane: DrawnLane, top: int) -> LaneRow:
    bar_y = top + _BAR_TOP_PX
    return LaneRow(
        lane=lane,
        label_y=top + _LABEL_BASELINE_PX,
        bar_y=bar_y,
        bar_height=_BAR_PX,
        tick=(bar_y - 1, bar_y + _BAR_PX + 1),
    )


def draw_lanes(lanes: Sequence[Lane], window: Window) -> tuple[Sequence[DrawnLane], str | None]:
    """Those that are or were not ok first, and what is to be said of the rest."""
    seen = [(lane, _within(lane, window)) for lane in lanes]
    by_need = sorted(
        ((lane, segments) for lane, segments in seen if segments),
        key=lambda one: (_need(one[1]), one[0].name),
    )
    shown, rest = by_need[:MOST_LANES], by_need[MOST_LANES:]
    return [_drawn(lane, segments, window) for lane, segments in shown], _said_of(rest)


def _within(lane: Lane, window: Window) -> list[Segment]:
    return [one for one in lane.segments if one.until > window.since and one.since < window.until]


def _need(segments: Sequence[Segment]) -> tuple[int, int]:
    """Who is ill now comes before who was, and of either the worst."""
    return _WORST.index(segments[-1].availability), min(_WORST.index(one.availability) for one in segments)


def _drawn(lane: Lane, segments: Sequence[Segment], window: Window) -> DrawnLane:
    state, word = AVAILABILITIES[segments[-1].availability]
    return DrawnLane(
        worker_id=lane.worker_id,
        name=lane.name,
        state=state,
        word=word,
        segments=[_drawn_segment(lane.name, one, window) for one in segments],
    )


def _drawn_segment(name: str, one: Segment, window: Window) -> DrawnSegment:
    x, end = window.percent(one.since), window.percent(one.until)
    state, word = AVAILABILITIES[one.availability]
    title = f"{name}: {word} {hm(one.since)}–{hm(one.until)}"
    return DrawnSegment(x=x, width=round(end - x, 2), state=state, title=title)


def _said_of(rest: Sequence[tuple[Lane, Sequence[Segment]]]) -> str | None:
    """`+188 available`; never "available" for one that is not."""
    counts: dict[str, int] = {}
    for availability in _WORST:
        count = sum(segments[-1].availability is availability for _, segments in rest)
        if count:
            counts[AVAILABILITIES[availability][1]] = count
    return ", ".join(f"+{count} {word}" for word, count in counts.items()) or None
