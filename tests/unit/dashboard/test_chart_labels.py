"""Labels are placed so that none can lie over another, nor be crossed or touched by another's line."""

from datetime import UTC, datetime, timedelta
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.dashboard.chart.draw import ChartFacts, Frame, draw
from dlq_handler.dashboard.chart.labels import LabelRequest, PlacedLabel, Side, place
from dlq_handler.dashboard.chart.scale import window_until
from dlq_handler.history.event import WORKER_UNAVAILABLE, HistoryEvent
from dlq_handler.history.history import Segment, Timeline
from dlq_handler.workers.availability import Availability

WIDTH_PX = 880.0
# An average character of a wide font at 12 px; real ones are narrower.
CHARACTER_PX = 7.0
# Nearer than that, a line of another looks like a label's own.
APART = 4.0 * 100 / WIDTH_PX
# What letters of 12 px take below and above the line they stand on.
DESCENT_PX, ASCENT_PX = 3, 10
NOW = datetime(2026, 11, 16, 2, 58, 14, tzinfo=UTC)

# Some anywhere, some in the same few pixels, as markers of one minute are.
markers = st.one_of(st.floats(0, 100), st.floats(40, 41)).map(lambda x: (x, x))
bands = st.tuples(st.floats(0, 90), st.floats(0.5, 10)).map(lambda band: (band[0], sum(band)))
requests = st.lists(
    st.builds(
        lambda ends, length, weight: LabelRequest(
            start=ends[0], end=ends[1], text="x" * length, kind="bad", weight=weight
        ),
        st.one_of(markers, bands),
        st.integers(3, 45),
        st.integers(0, 3),
    ),
    max_size=9,
)


def extent(one: PlacedLabel) -> tuple[float, float]:
    """Where its text really is, in percent, drawn from the side on which it hangs."""
    length = len(one.request.text) * CHARACTER_PX * 100 / WIDTH_PX
    if one.side is Side.LEFT:
        return one.text_end - length, one.text_end
    return one.text_start, one.text_start + length


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


@given(requests)
def test_no_label_lies_over_another_nor_is_crossed_by_a_line(wanted: list[LabelRequest]) -> None:
    placed, left_out = place(wanted, least_width_px=WIDTH_PX, most_rows=5)
    assert len(placed) + left_out == len(wanted)
    for one, other in combinations(placed, 2):
        start, end = extent(one)
        assert one.row != other.row or not overlap((start - APART, end + APART), extent(other))
        for text, line in ((one, other), (other, one)):
            is_line = line.request.start == line.request.end
            passes = line.row > text.row if line.side is Side.ON_TOP else line.row >= text.row
            start, end = extent(text)
            assert not (is_line and passes and start - APART < line.request.start < end + APART)


@given(minutes=st.lists(st.integers(0, 59), max_size=6), workers=st.integers(1, 10))
def test_no_mark_goes_through_the_label_of_a_timeline(minutes: list[int], workers: int) -> None:
    """Wherever it stands: on a phone a label is half as long as the picture is wide."""
    markers = [
        HistoryEvent(
            id=number,
            at=NOW - timedelta(minutes=minute),
            topic="workers",
            kind=WORKER_UNAVAILABLE,
            subject=f"worker-{number}",
            detail=None,
            replica="sidecar-1",
        )
        for number, minute in enumerate(minutes)
    ]
    seen = Segment(since=NOW - timedelta(hours=1), until=NOW, availability=Availability.AVAILABLE)
    timelines = [
        Timeline(worker_id=number, name=f"worker-{number}", segments=(seen,)) for number in range(workers)
    ]
    chart = draw(
        ChartFacts(minutes=(), gaps=(), timelines=timelines, markers=markers),
        window_until(NOW, bar_seconds=60, bars=60),
        Frame(name="narrow", bars_px=120, least_width_px=270, most_rows=6, tick_seconds=600),
        ttl_seconds=300,
        warning_per_minute=10,
    )
    strokes = [(one.top, float(chart.base)) for one in chart.labels]
    strokes += [(float(row.tick[0]), float(row.tick[1])) for row in chart.timelines]
    for row in chart.timelines:
        letters = (float(row.label_y - ASCENT_PX), float(row.label_y + DESCENT_PX))
        assert not any(overlap(letters, stroke) for stroke in strokes)
        assert row.tick[0] <= row.bar_y < row.bar_y + row.bar_height <= row.tick[1] <= chart.foot


@given(requests)
def test_no_label_is_cut_at_an_edge_and_none_is_higher_than_there_are_rows(
    wanted: list[LabelRequest],
) -> None:
    placed, _ = place(wanted, least_width_px=WIDTH_PX, most_rows=5)
    for one in placed:
        start, end = extent(one)
        assert start >= 0
        assert end <= 100
        assert 0 <= one.row < 5


def test_what_matters_least_goes_first_when_there_is_no_room() -> None:
    crowd = [
        LabelRequest(start=50 + x, end=50 + x, text="worker-python gone 02:26", kind="bad", weight=x)
        for x in range(6)
    ]
    placed, left_out = place(crowd, least_width_px=270, most_rows=2)
    assert left_out
    assert max(one.request.weight for one in placed) < min(
        one.weight for one in crowd if one not in [other.request for other in placed]
    )


def test_a_lone_label_stands_right_above_the_bars_on_the_right_of_its_line() -> None:
    [one], left_out = place(
        [LabelRequest(start=40, end=40, text="brake tripped 02:38", kind="bad")],
        least_width_px=880,
        most_rows=5,
    )
    assert (one.row, one.side, left_out) == (0, Side.RIGHT, 0)


def test_in_the_middle_of_a_phone_a_label_stands_on_top_of_its_line() -> None:
    [one], left_out = place(
        [LabelRequest(start=50, end=50, text="worker-python gone 02:26", kind="bad")],
        least_width_px=270,
        most_rows=6,
    )
    assert (one.side, left_out) == (Side.ON_TOP, 0)


def test_where_there_is_no_room_for_all_words_the_short_ones_are_taken() -> None:
    request = LabelRequest(start=9, end=9, text="x" * 41, short="y" * 30, kind="effect", weight=1)
    edge = LabelRequest(start=98, end=98, text="replica started 17:09", kind="plain", weight=3)
    placed, left_out = place([request, edge], least_width_px=270, most_rows=6)
    assert sorted(one.request.text[0] for one in placed) == ["r", "y"]
    assert left_out == 0


def test_on_a_phone_cause_and_effect_are_both_shown_in_fewer_words() -> None:
    gone = LabelRequest(start=29, end=29, text="worker-python gone 18:40", kind="bad")
    first = LabelRequest(start=41, end=41, text="x" * 33, terse="first letter 18:44", kind="effect", weight=1)
    placed, left_out = place([gone, first], least_width_px=270, most_rows=6)
    assert sorted(one.request.text for one in placed) == ["first letter 18:44", gone.text]
    assert left_out == 0
