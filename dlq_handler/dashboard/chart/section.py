"""The chart's card: which stretch of time, drawn for desk and phone, or as a table, or why it is empty. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from dlq_handler.dashboard.chart.draw import Chart, ChartFacts, Frame, draw
from dlq_handler.dashboard.chart.scale import Window, window_until
from dlq_handler.dashboard.chart.table import ChartTable, as_table
from dlq_handler.dashboard.words import ago, iso
from dlq_handler.dead_letters.filter import CameBefore
from dlq_handler.diagnosis.view import OFF, Unknown, View
from dlq_handler.text import in_units
from dlq_handler.topology.decide_canary import CanaryState

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
