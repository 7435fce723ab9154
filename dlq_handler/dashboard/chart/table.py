"""The chart as a table: the same figures, gaps and markers as text. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dlq_handler.dashboard.chart.draw import ChartFacts
from dlq_handler.dashboard.chart.markers import between, first_letter_labels, gap_name, marker_labels
from dlq_handler.dashboard.chart.scale import HUES, Window, gather, hue_of
from dlq_handler.dashboard.chart.timelines import draw_timelines
from dlq_handler.dashboard.words import hm, thousands, with_full_stop


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
    markers = [
        *marker_labels(facts.markers, window),
        *first_letter_labels(facts.markers, facts.timelines, letters, window, ttl_seconds=ttl_seconds),
    ]
    timelines, more = draw_timelines(facts.timelines, window)
    notes = [with_full_stop(one.text) for one in sorted(markers, key=lambda one: one.start)]
    notes += [
        with_full_stop(one.title)
        for timeline in timelines
        for one in timeline.segments
        if one.state.value != "ok"
    ]
    return ChartTable(
        caption=f"{thousands(total)} letters from {hm(window.since)} to {hm(window.until)}; empty times are left out.",
        reasons=reasons,
        rows=list(_rows(letters, reasons, facts, window)),
        notes=[*notes, *([with_full_stop(more)] if more else [])],
    )


def _rows(
    letters: Mapping[int, Mapping[str, int]], reasons: Sequence[str], facts: ChartFacts, window: Window
) -> Iterator[ChartRow]:
    """In order of time. A gap has no count: it is not 0."""
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
    for span in facts.gaps:
        if span.until > window.since and span.since < window.until:
            words = (
                f"{gap_name(span, facts.markers)} {between(span)}: dead letters of this time are not complete"
            )
            timed.append((span.since.timestamp(), ChartRow(start=hm(span.since), words=words)))
    yield from (row for _, row in sorted(timed, key=lambda one: one[0]))
