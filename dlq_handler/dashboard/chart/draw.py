"""Geometry of the chart: dead letters over time, stacked by reason, above one timeline per worker. Pure.

Widths are in percent and heights in pixels, so that it fills any screen with letters of one size; the template only
writes the numbers down. A phone gets a chart of its own, not a small one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlq_handler.dashboard.chart.labels import LabelRequest, PlacedLabel, Side, place
from dlq_handler.dashboard.chart.markers import first_letter_labels, gap_labels, marker_labels
from dlq_handler.dashboard.chart.scale import HUES, Window, gather, hue_of, round_top, time_ticks
from dlq_handler.dashboard.words import AVAILABILITIES, State, hm, thousands
from dlq_handler.dead_letters.group import MinuteCount
from dlq_handler.history.event import HistoryEvent
from dlq_handler.history.history import Segment, Span, Timeline
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
    top: int
    """From the top of the chart, in pixels."""

    @property
    def label_y(self) -> int:
        return self.top + _LABEL_BASELINE_PX

    @property
    def bar_y(self) -> int:
        return self.top + _BAR_TOP_PX

    @property
    def bar_height(self) -> int:
        return _BAR_PX

    @property
    def tick(self) -> tuple[int, int]:
        """From where to where a marker is drawn in it: over the bar, a little longer, and never through the label."""
        return self.bar_y - 1, self.bar_y + _BAR_PX + 1


def draw_timelines(
    timelines: Sequence[Timeline], window: Window, *, top: int = 0
) -> tuple[Sequence[DrawnTimeline], str | None]:
    """Those that are or were not ok first, and what is to be said of the rest."""
    seen = [(timeline, _within(timeline, window)) for timeline in timelines]
    by_need = sorted(
        ((timeline, segments) for timeline, segments in seen if segments),
        key=lambda one: (_need(one[1]), one[0].name),
    )
    shown, rest = by_need[:MOST_TIMELINES], by_need[MOST_TIMELINES:]
    drawn = [
        _drawn(timeline, segments, window, top + place * TIMELINE_PX)
        for place, (timeline, segments) in enumerate(shown)
    ]
    return drawn, _said_of(rest)


def _within(timeline: Timeline, window: Window) -> list[Segment]:
    return [one for one in timeline.segments if one.until > window.since and one.since < window.until]


def _need(segments: Sequence[Segment]) -> tuple[int, int]:
    """Who is ill now comes before who was, and of either the worst."""
    return _WORST.index(segments[-1].availability), min(_WORST.index(one.availability) for one in segments)


def _drawn(timeline: Timeline, segments: Sequence[Segment], window: Window, top: int) -> DrawnTimeline:
    state, word = AVAILABILITIES[segments[-1].availability]
    return DrawnTimeline(
        worker_id=timeline.worker_id,
        name=timeline.name,
        state=state,
        word=word,
        segments=[_drawn_segment(timeline.name, one, window) for one in segments],
        top=top,
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


_ROW_PX = 17
_AXIS_PX = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """How much room there is, and how it is used."""

    name: str
    bars_px: int
    least_width_px: float
    """The plot is never narrower: labels are placed for this width, and are right for any wider one."""
    most_rows: int
    tick_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartFacts:
    minutes: Sequence[MinuteCount]
    gaps: Sequence[Span]
    timelines: Sequence[Timeline]
    markers: Sequence[HistoryEvent]
    is_outage: bool = False
    """The last gap is in progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    hue: str
    y: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    x: float
    title: str
    pieces: Sequence[Piece]


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    x: float
    width: float
    """Of a band; 0: it is a line."""
    text: str
    text_x: float
    text_y: float
    top: float
    """Where the line or the band begins. Both end at the base; a line goes on over the timelines' bars."""
    anchor: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    at: float
    text: str
    anchor: str = "middle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Legend:
    hue: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    frame: str
    height: int
    top: int
    """Where the bars end at most: above are the labels."""
    base: int
    foot: int
    """Where the timelines end."""
    bar_width: float
    bars: Sequence[Bar]
    values: Sequence[Tick]
    times: Sequence[Tick]
    warning_y: float
    labels: Sequence[Label]
    left_out: int
    timelines: Sequence[DrawnTimeline]
    more_timelines: str | None
    legend: Sequence[Legend]
    total: int
    summary: str
    """What is in the picture, for who does not see it."""


def draw(
    facts: ChartFacts, window: Window, frame: Frame, *, ttl_seconds: float, warning_per_minute: float
) -> Chart:
    letters = gather(facts.minutes, window)
    placed, left_out = place(
        _label_requests(facts, letters, window, ttl_seconds),
        least_width_px=frame.least_width_px,
        most_rows=frame.most_rows,
    )
    rows = max((one.row + 1 for one in placed), default=0)
    top = rows * _ROW_PX + 8
    base = top + frame.bars_px
    timelines, more_timelines = draw_timelines(facts.timelines, window, top=base + 12)
    foot = base + 12 + len(timelines) * TIMELINE_PX if timelines else base
    warning = warning_per_minute * window.bar_seconds / 60
    highest = max((sum(reasons.values()) for reasons in letters.values()), default=0)
    # The warning rate is always in the picture: two letters a minute must not resemble a flood.
    top_value, step = round_top(max(highest, warning * 1.2))
    px = frame.bars_px / top_value
    return Chart(
        frame=frame.name,
        height=foot + _AXIS_PX,
        top=top,
        base=base,
        foot=foot,
        bar_width=round(84 / window.bars, 2),
        bars=[_bar(number, letters[number], window, base, px) for number in sorted(letters)],
        values=[
            Tick(at=round(base - value * px, 1), text=thousands(value))
            for value in range(0, top_value + 1, step)
        ],
        times=_times(window, frame),
        warning_y=round(base - warning * px, 1),
        labels=[_label(one, rows) for one in placed],
        left_out=left_out,
        timelines=timelines,
        more_timelines=more_timelines,
        legend=_legend(letters),
        total=sum(sum(reasons.values()) for reasons in letters.values()),
        summary=_summary(letters, window, placed),
    )


def _label_requests(
    facts: ChartFacts, letters: Mapping[int, Mapping[str, int]], window: Window, ttl_seconds: float
) -> Sequence[LabelRequest]:
    return [
        *marker_labels(facts.markers, window),
        *gap_labels(facts.gaps, facts.markers, window, is_outage=facts.is_outage),
        *first_letter_labels(facts.markers, facts.timelines, letters, window, ttl_seconds=ttl_seconds),
    ]


def _bar(number: int, reasons: Mapping[str, int], window: Window, base: int, px: float) -> Bar:
    pieces, y = [], float(base)
    for hue in HUES:
        count = sum(count for reason, count in reasons.items() if hue_of(reason) == hue)
        if count:
            # One letter among thousands is seen all the same.
            height = max(1.5, count * px)
            y -= height
            pieces.append(Piece(hue=hue, y=round(y, 1), height=round(height, 1)))
    counts = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    start = window.start_of(number)
    return Bar(
        x=round(100 * (number + 0.08) / window.bars, 2),
        title=f"{hm(start)}: {thousands(sum(reasons.values()))} ({counts})",
        pieces=pieces,
    )


def _label(placed: PlacedLabel, rows: int) -> Label:
    baseline = (rows - placed.row) * _ROW_PX - 4
    return Label(
        x=placed.request.start,
        width=round(placed.request.end - placed.request.start, 2),
        text=placed.request.text,
        text_x=round(placed.text_end if placed.side is Side.LEFT else placed.text_start, 2),
        text_y=baseline,
        top=baseline + 4 if placed.side is Side.ON_TOP else baseline - 11,
        anchor="end" if placed.side is Side.LEFT else "start",
        kind=placed.request.kind,
    )


def _times(window: Window, frame: Frame) -> Sequence[Tick]:
    ticks = []
    edge = 18 * 100 / frame.least_width_px
    for at in time_ticks(window, frame.tick_seconds):
        x = window.percent(at)
        # At an edge a centred text would be cut.
        anchor = "start" if x < edge else "end" if x > 100 - edge else "middle"
        ticks.append(Tick(at=x, text=hm(at), anchor=anchor))
    return ticks


def _legend(letters: Mapping[int, Mapping[str, int]]) -> Sequence[Legend]:
    totals: dict[str, dict[str, int]] = {hue: {} for hue in HUES}
    for reasons in letters.values():
        for reason, count in reasons.items():
            of_hue = totals[hue_of(reason)]
            of_hue[reason] = of_hue.get(reason, 0) + count
    return [
        Legend(hue=hue, text=", ".join(f"{reason} {thousands(count)}" for reason, count in counts.items()))
        for hue, counts in totals.items()
        if counts
    ]


def _summary(letters: Mapping[int, Mapping[str, int]], window: Window, placed: Sequence[PlacedLabel]) -> str:
    total = sum(sum(reasons.values()) for reasons in letters.values())
    markers = "; ".join(one.request.text for one in sorted(placed, key=lambda one: one.request.start))
    text = f" {markers}." if markers else ""
    return f"{thousands(total)} dead letters from {hm(window.since)} to {hm(window.until)} UTC.{text}"
