"""The chart's card: which stretch of time, drawn for desk and phone, or as a table, or why it is empty. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlencode

from dlq_handler.dashboard.chart.draw import Chart, ChartFacts, Frame, draw, draw_timelines
from dlq_handler.dashboard.chart.markers import between, first_letter_labels, gap_name, marker_labels
from dlq_handler.dashboard.chart.scale import HUES, Window, gather, hue_of, window_until
from dlq_handler.dashboard.words import ago, hm, iso, thousands, with_full_stop
from dlq_handler.dead_letters.listing import CameBefore
from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.diagnosis import Diagnosis
from dlq_handler.diagnosis.view import OFF, BrokerFact, QueueFact, Unknown, View
from dlq_handler.history.history import Segment, Timeline, with_ongoing_gap
from dlq_handler.text import in_units
from dlq_handler.topology.canary import CanaryState
from dlq_handler.workers.availability import Availability

# These checks date the moment since when no dead letter is consumed.
_DATING = (Check.BROKER, Check.REPLICAS)


def with_outage(
    facts: ChartFacts, view: View | None, diagnoses: Sequence[Diagnosis], *, known_at: datetime, now: datetime
) -> ChartFacts:
    """The facts with an outage in progress. `known_at`: when they were read; earlier than now while the database is
    unavailable, and then the state of workers is unknown since.
    """
    if known_at < now:
        facts = replace(facts, timelines=[_unknown_since(one, known_at, now) for one in facts.timelines])
    if view is None or not _is_outage(view):
        return facts
    dates = [one.since for one in diagnoses if one.check in _DATING and one.since is not None]
    gaps = with_ongoing_gap(facts.gaps, since=min(dates, default=view.at), known_at=known_at, now=now)
    return replace(facts, gaps=gaps, is_outage=True)


def _unknown_since(timeline: Timeline, since: datetime, now: datetime) -> Timeline:
    gap = Segment(since=since, until=now, availability=Availability.UNKNOWN)
    return replace(timeline, segments=(*timeline.segments, gap))


def _is_outage(view: View) -> bool:
    if isinstance(view.broker, BrokerFact) and view.broker.error:
        return True
    if not isinstance(view.intake, QueueFact):
        return False
    taken = view.intake.consumers
    if taken is None or taken.count == 0:
        return True
    # The broker does not always list the consumers, or not all of them.
    is_listed = taken.tags is not None and not taken.lists_fewer
    return is_listed and not any(tag.startswith(view.own_prefix) for tag in taken.tags or ())


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


CANARY_RUN = "dlq-handler canary run"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanChoice:
    """How far back, in bars of how long; and what a phone has room for."""

    name: str
    unit: str
    bar_seconds: int
    bars: int
    tick_seconds: int
    phone_unit: str
    phone_bar_seconds: int
    phone_bars: int
    phone_tick_seconds: int

    @property
    def phone_span(self) -> str | None:
        """What a phone shows of it, in words; None: all of it."""
        seconds = self.phone_bar_seconds * self.phone_bars
        return None if seconds == self.bar_seconds * self.bars else in_units(seconds)


HOUR = SpanChoice(
    name="1 h",
    unit="minute",
    bar_seconds=60,
    bars=60,
    tick_seconds=600,
    phone_unit="minute",
    phone_bar_seconds=60,
    phone_bars=30,
    phone_tick_seconds=600,
)
DAY = SpanChoice(
    name="24 h",
    unit="15 min",
    bar_seconds=900,
    bars=96,
    tick_seconds=10_800,
    phone_unit="30 min",
    phone_bar_seconds=1800,
    phone_bars=48,
    phone_tick_seconds=21_600,
)
SPANS: Mapping[str, SpanChoice] = {"1h": HOUR, "24h": DAY}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanLink:
    name: str
    href: str
    is_here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    lines: Sequence[str]
    command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSection:
    unit: str
    phone_unit: str
    phone_span: str | None
    """How far back the phone's own picture reaches; None: as far as the other, or there is no picture."""
    drawn: Sequence[tuple[Chart, str]]
    """Each with its warning rate in words."""
    table: ChartTable | None
    table_href: str
    spans: Sequence[SpanLink]
    empty: Empty | None
    unknown: str | None = None
    """Why nothing is known of this time; then nothing is drawn: axes without bars would say that none came."""


def window_of(choice: SpanChoice, until: datetime) -> Window:
    return window_until(until, bar_seconds=choice.bar_seconds, bars=choice.bars)


def section(
    facts: ChartFacts,
    *,
    span: str,
    until: datetime,
    at: datetime | None,
    is_table: bool,
    ttl_seconds: float,
    warning_rate: float,
    empty: Empty | None,
) -> ChartSection:
    choice = SPANS[span]
    window = window_of(choice, until)
    table = as_table(facts, window, ttl_seconds=ttl_seconds) if is_table else None
    phone = window_until(until, bar_seconds=choice.phone_bar_seconds, bars=choice.phone_bars)
    wide = Frame(name="wide", bars_px=160, least_width_px=880, most_rows=5, tick_seconds=choice.tick_seconds)
    narrow = Frame(
        name="narrow", bars_px=120, least_width_px=270, most_rows=6, tick_seconds=choice.phone_tick_seconds
    )
    drawn = [
        (
            draw(facts, shown, frame, ttl_seconds=ttl_seconds, warning_per_minute=warning_rate),
            f"{warning_rate * shown.bar_seconds / 60:g} in {in_bars(shown.bar_seconds)}",
        )
        for shown, frame in ((window, wide), (phone, narrow))
    ]
    return ChartSection(
        unit=choice.unit,
        phone_unit=choice.unit if is_table else choice.phone_unit,
        phone_span=None if is_table else choice.phone_span,
        drawn=() if is_table else drawn,
        table=table,
        table_href=href(span, at, is_table=not is_table),
        spans=_spans(span, at, is_table=is_table),
        empty=empty if not any(chart.total for chart, _ in drawn) else None,
    )


def unknown(explanation: str, *, span: str, at: datetime | None, is_table: bool) -> ChartSection:
    return ChartSection(
        unit=SPANS[span].unit,
        phone_unit=SPANS[span].unit,
        phone_span=None,
        drawn=(),
        table=None,
        # There is no picture to go back to, so that the link says "as table", and leads there.
        table_href=href(span, at, is_table=True),
        spans=_spans(span, at, is_table=is_table),
        empty=None,
        unknown=explanation,
    )


def _spans(span: str, at: datetime | None, *, is_table: bool) -> Sequence[SpanLink]:
    return [
        SpanLink(name=one.name, href=href(key, at, is_table=is_table), is_here=key == span)
        for key, one in SPANS.items()
    ]


def in_bars(seconds: int) -> str:
    return "1 min" if seconds == 60 else in_units(seconds)


def nothing_came(view: View | None, *, span: str, came: CameBefore, now: datetime) -> Empty:
    """The words distinguish a quiet time from an installation that has not received anything yet."""
    if not came.has_any:
        return Empty(
            lines=(
                "Waiting for the first letter.",
                "Check that dead letters would reach dlq-handler. Canaries are neither recorded nor counted:",
            ),
            command=CANARY_RUN,
        )
    text = f"No dead letters in the last {'hour' if span == '1h' else '24 hours'}."
    if came.last_at is None:
        text += " Of earlier ones none is remembered that counts."
    # For a moment of the past the last one before it is unknown.
    elif came.last_at <= now:
        text += f" Last one {ago(came.last_at, now)}."
    canary = _canary_passed(view)
    return Empty(lines=(f"{text} {canary}" if canary else text,))


def _canary_passed(view: View | None) -> str | None:
    """That none came means something only if one would have come."""
    if view is None or view.canaries == OFF or isinstance(view.canaries, Unknown):
        return None
    passed = [
        one for one in view.canaries if one.state is CanaryState.OK and one.seen_seconds_ago is not None
    ]
    if not passed:
        return "No canary has passed lately."
    last = min(passed, key=lambda one: one.seen_seconds_ago or 0.0)
    return f"Canary passed {in_units(last.seen_seconds_ago or 0.0)} ago in {last.took_seconds or 0.0:.1f} s."


def href(span: str, at: datetime | None, *, is_table: bool) -> str:
    asked: dict[str, str] = {}
    if span != "1h":
        asked["span"] = span
    if is_table:
        asked["chart"] = "table"
    if at is not None:
        asked["at"] = iso(at)
    return f"/?{urlencode(asked)}" if asked else "/"
