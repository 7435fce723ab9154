"""The chart as a table: the same figures, the blind time and the marks, for whoever reads rather than looks. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dlq_handler.dashboard.chart import ChartFacts
from dlq_handler.dashboard.chart_lanes import draw_lanes
from dlq_handler.dashboard.chart_marks import first_letters, mark_wishes
from dlq_handler.dashboard.chart_scale import HUES, Window, gather, hue_of
from dlq_handler.dashboard.words import hm, stopped, thousands
from dlq_handler.history.history import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartRow:
    start: str
    counts: Sequence[str] = ()
    total: str = ""
    words: str | None = None
    """In place of counts: what is to be said of this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartTable:
    caption: str
    reasons: Sequence[str]
    rows: Sequence[ChartRow]
    notes: Sequence[str]


def as_table(facts: ChartFacts, window: Window, *, ttl_seconds: float) -> ChartTable:
    letters = gather(facts.minutes, window)
    found = {reason for counts in letters.values() for reason in counts}
    reasons = sorted(found, key=lambda reason: (HUES.index(hue_of(reason)), reason))
    total = sum(sum(counts.values()) for counts in letters.values())
    marks = [
        *mark_wishes(facts.marks, window),
        *first_letters(facts.marks, facts.lanes, letters, window, ttl_seconds=ttl_seconds),
    ]
    lanes, more = draw_lanes(facts.lanes, window)
    notes = [stopped(one.text) for one in sorted(marks, key=lambda one: one.start)]
    notes += [stopped(one.title) for lane in lanes for one in lane.segments if one.state.value != "ok"]
    return ChartTable(
        caption=f"{thousands(total)} letters from {hm(window.since)} to {hm(window.until)}; empty times are left out.",
        reasons=reasons,
        rows=list(_rows(letters, reasons, facts.blind, window)),
        notes=[*notes, *([stopped(more)] if more else [])],
    )


def _rows(
    letters: Mapping[int, Mapping[str, int]], reasons: Sequence[str], blind: Sequence[Span], window: Window
) -> Iterator[ChartRow]:
    """In order of time. A minute that nobody saw has no count: it is not 0."""
    timed: list[tuple[float, ChartRow]] = []
    for bar, counts in letters.items():
        at = window.start_of(bar)
        timed.append(
            (
                at.timestamp(),
                ChartRow(
                    start=hm(at),
                    counts=[thousands(counts.get(reason, 0)) for reason in reasons],
                    total=thousands(sum(counts.values())),
                ),
            )
        )
    for span in blind:
        if span.until > window.since and span.since < window.until:
            words = f"not connected until {hm(span.until)}: what came then is not known"
            timed.append((span.since.timestamp(), ChartRow(start=hm(span.since), words=words)))
    yield from (row for _, row in sorted(timed, key=lambda one: one[0]))
