"""Labels are placed so that none can lie over another, nor be crossed by another's line."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.surface.dashboard.chart_labels import Placed, Side, Wish, place

WIDTH_PX = 880.0
# An average character of a wide font at 12 px; real ones are narrower.
CHARACTER_PX = 7.0

marks = st.floats(0, 100).map(lambda x: (x, x))
bands = st.tuples(st.floats(0, 90), st.floats(0.5, 10)).map(lambda band: (band[0], sum(band)))
wishes = st.lists(
    st.builds(
        lambda ends, length, weight: Wish(
            start=ends[0], end=ends[1], text="x" * length, kind="bad", weight=weight
        ),
        st.one_of(marks, bands),
        st.integers(3, 45),
        st.integers(0, 3),
    ),
    max_size=9,
)


def extent(one: Placed) -> tuple[float, float]:
    """Where its text really is, in percent, drawn from the side on which it hangs."""
    length = len(one.wish.text) * CHARACTER_PX * 100 / WIDTH_PX
    if one.side is Side.LEFT:
        return one.text_end - length, one.text_end
    return one.text_start, one.text_start + length


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


@given(wishes)
def test_no_label_lies_over_another_nor_is_crossed_by_a_line(wanted: list[Wish]) -> None:
    placed, left_out = place(wanted, least_width_px=WIDTH_PX, most_rows=5)
    assert len(placed) + left_out == len(wanted)
    for one, other in combinations(placed, 2):
        assert one.row != other.row or not overlap(extent(one), extent(other))
        for text, line in ((one, other), (other, one)):
            is_line = line.wish.start == line.wish.end
            passes = line.row > text.row if line.side is Side.ON_TOP else line.row >= text.row
            start, end = extent(text)
            assert not (is_line and passes and start < line.wish.start < end)


@given(wishes)
def test_no_label_is_cut_at_an_edge_and_none_is_higher_than_there_are_rows(wanted: list[Wish]) -> None:
    placed, _ = place(wanted, least_width_px=WIDTH_PX, most_rows=5)
    for one in placed:
        start, end = extent(one)
        assert start >= 0
        assert end <= 100
        assert 0 <= one.row < 5


def test_what_matters_least_goes_first_when_there_is_no_room() -> None:
    crowd = [
        Wish(start=50 + x, end=50 + x, text="worker-python gone 02:26", kind="bad", weight=x)
        for x in range(6)
    ]
    placed, left_out = place(crowd, least_width_px=270, most_rows=2)
    assert left_out
    assert max(one.wish.weight for one in placed) < min(
        one.weight for one in crowd if one not in [other.wish for other in placed]
    )


def test_a_lone_label_stands_right_above_the_bars_on_the_right_of_its_line() -> None:
    [one], left_out = place(
        [Wish(start=40, end=40, text="brake tripped 02:38", kind="bad")], least_width_px=880, most_rows=5
    )
    assert (one.row, one.side, left_out) == (0, Side.RIGHT, 0)


def test_in_the_middle_of_a_phone_a_label_stands_on_top_of_its_line() -> None:
    [one], left_out = place(
        [Wish(start=50, end=50, text="worker-python gone 02:26", kind="bad")], least_width_px=270, most_rows=6
    )
    assert (one.side, left_out) == (Side.ON_TOP, 0)


def test_where_there_is_no_room_for_all_words_the_short_ones_are_taken() -> None:
    wish = Wish(start=9, end=9, text="x" * 41, short="y" * 30, kind="effect", weight=1)
    edge = Wish(start=98, end=98, text="sidecar started 17:09", kind="plain", weight=3)
    placed, left_out = place([wish, edge], least_width_px=270, most_rows=6)
    assert sorted(one.wish.text[0] for one in placed) == ["s", "y"]
    assert left_out == 0
