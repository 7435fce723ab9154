"""The chart's geometry: bars where and as high as the letters, markers, gaps and timelines on the same axis."""

from datetime import UTC, datetime, timedelta

import pytest

from dlq_handler.dashboard.chart.draw import Chart, ChartFacts, Frame, draw
from dlq_handler.dashboard.chart.scale import Window, round_top, window_until
from dlq_handler.dashboard.chart.section import (
    HOUR,
    ChartSection,
    Empty,
    as_table,
    nothing_came,
    section,
    with_outage,
)
from dlq_handler.dead_letters.group import MinuteCount
from dlq_handler.dead_letters.listing import CameBefore
from dlq_handler.history.event import WORKER_UNAVAILABLE, HistoryEvent
from dlq_handler.history.history import Segment, Span, Timeline
from dlq_handler.workers.availability import Availability
from tests.support.views import a_canary, a_view

NOW = datetime(2026, 11, 16, 2, 58, 14, tzinfo=UTC)
FRAME = Frame(name="wide", bars_px=160, least_width_px=880, most_rows=5, tick_seconds=600)
TTL_SECONDS = 300.0


def at(hour: int, minute: int, second: int = 0) -> datetime:
    return datetime(2026, 11, 16, hour, minute, second, tzinfo=UTC)


def minute(when: datetime, letters: int, reason: str = "expired") -> MinuteCount:
    return MinuteCount(minute=when, reason=reason, letters=letters)


def timeline(name: str, *parts: tuple[datetime, datetime, Availability], number: int = 7) -> Timeline:
    segments = [Segment(since=since, until=until, availability=state) for since, until, state in parts]
    return Timeline(worker_id=number, name=name, segments=tuple(segments))


def a_marker(kind: str, when: datetime, subject: str = "worker-python") -> HistoryEvent:
    return HistoryEvent(id=1, at=when, topic="t", kind=kind, subject=subject, detail=None, replica="r-1")


def gone(when: datetime, name: str = "worker-python") -> HistoryEvent:
    return a_marker(WORKER_UNAVAILABLE, when, name)


def came_at(last_at: datetime | None, *, has_any: bool = True) -> CameBefore:
    return CameBefore(has_any=has_any, last_at=last_at)


def facts(**some: object) -> ChartFacts:
    nothing: dict[str, object] = {"minutes": (), "gaps": (), "timelines": (), "markers": ()}
    return ChartFacts(**(nothing | some))  # type: ignore[arg-type]  # what a test gives is of its kind


def hour() -> Window:
    return window_until(NOW, bar_seconds=60, bars=60)


def drawn(**some: object) -> Chart:
    return draw(facts(**some), hour(), FRAME, ttl_seconds=TTL_SECONDS, warning_per_minute=10)


def texts(chart: Chart) -> list[str]:
    return [one.text for one in sorted(chart.labels, key=lambda one: one.x)]


def test_the_last_bar_is_the_minute_that_is_now() -> None:
    window = hour()
    assert (window.since, window.until) == (at(1, 59), at(2, 59))
    assert window.bar_of(NOW) == 59


def test_bars_begin_at_round_times_whenever_the_page_is_loaded() -> None:
    window = window_until(NOW, bar_seconds=900, bars=96)
    assert window.until == at(3, 0)
    assert window.since == at(3, 0) - timedelta(days=1)


def test_a_bar_is_stacked_by_reason_without_gap_or_overlap() -> None:
    chart = drawn(
        minutes=[minute(at(2, 31), 20), minute(at(2, 31), 4, "rejected"), minute(at(2, 31), 1, "rescued")]
    )
    [bar] = chart.bars
    assert [piece.hue for piece in bar.pieces] == ["expired", "rejected", "none"]
    assert bar.title == "02:31: 25 (expired 20, rejected 4, rescued 1)"
    below = float(chart.base)
    for piece in bar.pieces:
        assert abs(piece.y + piece.height - below) <= 0.2
        below = piece.y
    assert below >= chart.top


def test_one_letter_among_thousands_is_seen() -> None:
    chart = drawn(minutes=[minute(at(2, 31), 9000), minute(at(2, 40), 1)])
    assert chart.bars[-1].pieces[0].height >= 1.5


def test_the_warning_rate_is_in_the_picture_of_a_quiet_hour() -> None:
    chart = drawn(minutes=[minute(at(2, 31), 2)])
    assert chart.top < chart.warning_y < chart.base


def test_a_gap_is_a_band_with_words() -> None:
    chart = drawn(gaps=[Span(since=at(2, 10), until=at(2, 13))])
    [band] = chart.labels
    assert (band.text, band.kind) == ("not connected 02:10–02:13", "gap")
    assert band.width == 5.0


@pytest.mark.parametrize(
    ("kind", "seconds", "word"),
    [
        ("brake.tripped", 10, "paused by the brake"),
        ("gate.closed", -20, "paused by the safety gate"),
        ("brake.tripped", 120, "not connected"),
        ("worker.unavailable", 0, "not connected"),
    ],
)
def test_a_pause_of_dlq_handler_is_no_lost_connection(kind: str, seconds: int, word: str) -> None:
    gap = Span(since=at(2, 10), until=at(2, 13))
    marker = a_marker(kind, gap.since + timedelta(seconds=seconds))
    assert f"{word} 02:10–02:13" in texts(drawn(gaps=[gap], markers=[marker]))
    [row] = as_table(facts(gaps=[gap], markers=[marker]), hour(), ttl_seconds=TTL_SECONDS).rows
    assert row.words is not None
    assert row.words.startswith(word)


def test_a_gap_within_one_minute_has_seconds() -> None:
    gap = Span(since=at(2, 10), until=at(2, 10) + timedelta(seconds=45))
    assert texts(drawn(gaps=[gap])) == ["not connected 02:10:00–02:10:45"]


def test_an_outage_in_progress_is_never_left_out_for_older_markers() -> None:
    older = [a_marker("worker.unavailable", at(2, number)) for number in range(0, 56, 4)]
    gap = Span(since=at(2, 55), until=at(2, 59))
    chart = drawn(gaps=[gap], markers=older, is_outage=True)
    assert chart.left_out > 0
    assert "not connected 02:55–02:59" in texts(chart)


def test_while_the_record_cannot_be_read_the_state_of_workers_is_unknown() -> None:
    known = facts(timelines=[timeline("worker-python", (at(2, 0), at(2, 30), Availability.AVAILABLE))])
    shown = with_outage(known, None, (), known_at=at(2, 30), now=at(2, 40))
    assert [(one.availability, one.until) for one in shown.timelines[0].segments] == [
        (Availability.AVAILABLE, at(2, 30)),
        (Availability.UNKNOWN, at(2, 40)),
    ]


def test_what_lasts_until_the_edge_of_the_picture_ends_at_a_time_and_not_now() -> None:
    chart = drawn(
        gaps=[Span(since=at(2, 50), until=at(2, 59))],
        timelines=[timeline("worker-python", (at(2, 50), at(2, 59), Availability.UNAVAILABLE))],
    )
    assert texts(chart) == ["not connected 02:50–02:59"]
    assert chart.timelines[0].segments[0].title == "worker-python: unavailable 02:50–02:59"


def test_the_first_letter_is_marked_one_ttl_after_the_worker_was_lost() -> None:
    chart = drawn(
        minutes=[minute(at(2, 31) + timedelta(minutes=step), 20) for step in range(20)],
        markers=[gone(at(2, 27, 30))],
        timelines=[
            timeline(
                "worker-python",
                (at(1, 59), at(2, 26), Availability.AVAILABLE),
                (at(2, 26), at(2, 27, 30), Availability.LATE),
                (at(2, 27, 30), NOW, Availability.UNAVAILABLE),
            )
        ],
    )
    assert texts(chart) == [
        "worker-python unavailable 02:27",
        "first letter 02:31, one TTL (5 min) later",
    ]


def test_a_first_letter_is_never_drawn_before_the_worker_went() -> None:
    chart = draw(
        facts(minutes=[minute(at(2, 27), 20)], markers=[gone(at(2, 27, 30))]),
        hour(),
        FRAME,
        ttl_seconds=10,
        warning_per_minute=10,
    )
    assert texts(chart) == ["worker-python unavailable 02:27"]


def test_where_letters_expired_all_along_none_is_the_first() -> None:
    chart = drawn(minutes=[minute(at(2, step), 5) for step in range(50)], markers=[gone(at(2, 26))])
    assert texts(chart) == ["worker-python unavailable 02:26"]


def test_a_fleet_that_goes_at_once_is_one_mark() -> None:
    chart = drawn(markers=[gone(at(2, 26, second), f"worker-{second}") for second in range(40)])
    assert texts(chart) == ["40 workers unavailable 02:26"]


def test_at_most_eight_timelines_are_drawn_the_ill_ones_first() -> None:
    fleet = [
        timeline(f"worker-{number:03}", (at(1, 59), NOW, Availability.AVAILABLE), number=number)
        for number in range(196)
    ]
    ill = [
        timeline("zz-gone", (at(1, 59), NOW, Availability.UNAVAILABLE), number=900),
        timeline("zz-late", (at(1, 59), NOW, Availability.LATE), number=901),
    ]
    chart = drawn(timelines=[*fleet, *ill])
    assert [one.name for one in chart.timelines][:3] == ["zz-gone", "zz-late", "worker-000"]
    assert len(chart.timelines) == 8
    assert chart.more_timelines == "+190 available"


def test_unavailable_workers_come_before_those_that_are_back() -> None:
    was = timeline(
        "a-was", (at(2, 0), at(2, 9), Availability.UNAVAILABLE), (at(2, 9), NOW, Availability.AVAILABLE)
    )
    chart = drawn(timelines=[was, timeline("z-is", (at(2, 0), NOW, Availability.UNAVAILABLE), number=8)])
    assert [one.name for one in chart.timelines] == ["z-is", "a-was"]


def test_a_worker_of_whom_nothing_is_known_is_never_called_available() -> None:
    [unknown] = drawn(timelines=[timeline("w", (at(2, 0), NOW, Availability.UNKNOWN))]).timelines
    assert (unknown.state.sign, unknown.word) == ("?", "unknown")


def test_the_axis_ends_at_a_round_number_above_the_highest_bar() -> None:
    for highest in (1, 9, 10, 11, 26, 31, 99, 100, 101, 604, 12_431):
        top, step = round_top(highest)
        assert top >= highest
        assert top % step == 0
        assert 1 <= top / step <= 5


def a_section(span: str, shown: ChartFacts, *, is_table: bool = False) -> ChartSection:
    return section(
        shown,
        span=span,
        until=NOW,
        at=None,
        is_table=is_table,
        ttl_seconds=TTL_SECONDS,
        warning_rate=10,
        empty=Empty(lines=("nothing",)),
    )


def of_section(span: str, **some: object) -> list[Chart]:
    return [chart for chart, _ in a_section(span, facts(**some)).drawn]


def test_a_phone_gets_the_last_half_hour() -> None:
    wide, narrow = of_section("1h", minutes=[minute(at(2, 5), 3), minute(at(2, 50), 4)])
    assert (wide.total, narrow.total) == (7, 4)
    assert HOUR.phone_bars == 30


def test_the_head_names_what_the_picture_of_a_phone_shows() -> None:
    """Of the table all is shown on a phone too, and of a day."""
    found = [a_section("1h", facts()), a_section("1h", facts(), is_table=True), a_section("24h", facts())]
    assert [one.phone_span for one in found] == ["30 min", None, None]


def test_the_table_has_a_row_of_words_for_a_gap_and_no_zero() -> None:
    table = as_table(
        facts(minutes=[minute(at(2, 5), 3)], gaps=[Span(since=at(2, 10), until=at(2, 13))]),
        hour(),
        ttl_seconds=TTL_SECONDS,
    )
    assert [row.start for row in table.rows] == ["02:05", "02:10"]
    assert table.rows[1].words is not None
    assert table.rows[1].counts == ()


def test_a_quiet_hour_says_when_the_last_one_came_and_that_one_would_arrive() -> None:
    canary = a_canary()
    view = a_view(
        canaries=[
            type(canary)(
                worker_id=7, state=canary.state, explanation="", took_seconds=0.9, seen_seconds_ago=41
            )
        ]
    )
    quiet = nothing_came(view, span="1h", came=came_at(NOW - timedelta(days=3)), now=NOW)
    assert quiet.lines == (
        "No dead letters in the last hour. Last one 3 d ago. Canary passed 41 s ago in 0.9 s.",
    )


def test_a_letter_that_came_after_the_moment_looked_at_is_not_its_last_one() -> None:
    quiet = nothing_came(None, span="1h", came=came_at(NOW + timedelta(hours=5)), now=NOW)
    assert quiet.lines == ("No dead letters in the last hour.",)


def test_a_bar_of_a_quarter_of_an_hour_names_no_first_letter() -> None:
    [wide, _] = of_section("24h", minutes=[minute(at(2, 31), 20)], markers=[gone(at(2, 27))])
    assert texts(wide) == ["worker-python unavailable 02:27"]
