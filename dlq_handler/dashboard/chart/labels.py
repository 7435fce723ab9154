"""Place the chart's labels so that none lies over another, nor over the line of another. Pure.

Each label hangs on something in the picture: a vertical line, or a band. It stands beside it or on top of it, in one of
the rows above the bars, and what it hangs on reaches up to it. What finds no place is left out and counted: the table
has it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

# Wider than the widest usual font: a label that is thought too long costs a row, one too short covers another.
_CHARACTER_PX = 7.2
_GAP_PX = 5.0


class Side(StrEnum):
    """Where the text stands, seen from what it names."""

    RIGHT = "right"
    LEFT = "left"
    ON_TOP = "on_top"
    """What it names begins below it: where there is room on neither side, as on a phone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRequest:
    """What wants a label: from where to where it reaches, in percent of the width."""

    start: float
    end: float
    text: str
    kind: str
    short: str | None = None
    """The same in fewer words, where there is no room for more."""
    terse: str | None = None
    """The fewest words that still say it, rather than that one of them all is left out."""
    weight: int = 0
    """The least first: the more it matters, the better its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedLabel:
    request: LabelRequest
    row: int
    """0 is the one right above the bars."""
    text_start: float
    text_end: float
    side: Side


def place(
    requests: Iterable[LabelRequest], *, least_width_px: float, most_rows: int
) -> tuple[Sequence[PlacedLabel], int]:
    """Those that found a place, and how many did not."""
    fitted = [_fitted(request, least_width_px) for request in requests]
    wanted = sorted(
        (request for request in fitted if request is not None), key=lambda request: request.weight
    )
    left_out = len(fitted) - len(wanted)
    while True:
        found = [
            placed
            for prefers_right in (True, False)
            for is_low_first in (True, False)
            if (placed := _place_all(wanted, least_width_px, most_rows, prefers_right, is_low_first))
            is not None
        ]
        if found:
            # There are several ways; the one with the fewest rows leaves most room to the bars.
            return min(found, key=lambda placed: max((one.row for one in placed), default=0)), left_out
        if not _make_terser(wanted):
            # The one that matters least goes, for the others to be read.
            wanted = wanted[:-1]
            left_out += 1


def _make_terser(wanted: list[LabelRequest]) -> bool:
    """One of them, the one that matters least, in its fewest words; false: all are."""
    for number in reversed(range(len(wanted))):
        terse = wanted[number].terse
        if terse is not None:
            wanted[number] = replace(wanted[number], text=terse, terse=None)
            return True
    return False


def _fitted(request: LabelRequest, width_px: float) -> LabelRequest | None:
    """None: in no words that it has."""
    for text in (request.text, request.short):
        if text is not None and len(text) * _CHARACTER_PX <= width_px:
            return replace(request, text=text)
    return None


def _place_all(
    requests: Sequence[LabelRequest], width_px: float, most_rows: int, prefers_right: bool, is_low_first: bool
) -> list[PlacedLabel] | None:
    """None: not all of them fit. Begun at the edge that texts go to, each can stand above those it would cross."""
    placed: list[PlacedLabel] = []
    gap = _GAP_PX * 100 / width_px
    for request in sorted(requests, key=lambda request: -request.start if prefers_right else request.end):
        ways = list(_ways(request, width_px, most_rows, prefers_right))
        if is_low_first:
            ways.sort(key=lambda way: way.row)
        free = (way for way in ways if not any(_collide(way, other, gap) for other in placed))
        found = next(free, None)
        if found is None:
            return None
        placed.append(found)
    return placed


def _ways(
    request: LabelRequest, width_px: float, most_rows: int, prefers_right: bool
) -> Iterator[PlacedLabel]:
    length = len(request.text) * _CHARACTER_PX * 100 / width_px
    gap = _GAP_PX * 100 / width_px
    on_top = min(max(0.0, (request.start + request.end - length) / 2), 100 - length)
    starts = {
        Side.RIGHT: request.end + gap,
        Side.LEFT: request.start - gap - length,
        Side.ON_TOP: on_top,
    }
    beside = (Side.RIGHT, Side.LEFT) if prefers_right else (Side.LEFT, Side.RIGHT)
    for side in (*beside, Side.ON_TOP):
        start = starts[side]
        if start >= 0 and start + length <= 100:
            for row in range(most_rows):
                yield PlacedLabel(
                    request=request, row=row, text_start=start, text_end=start + length, side=side
                )


def _collide(one: PlacedLabel, other: PlacedLabel, gap: float) -> bool:
    is_over = one.row == other.row and _overlap(
        one.text_start - gap, one.text_end + gap, other.text_start, other.text_end
    )
    return is_over or _is_crossed(one, other, gap) or _is_crossed(other, one, gap)


def _is_crossed(text: PlacedLabel, line: PlacedLabel, gap: float) -> bool:
    """A line goes from its label's row down through all rows below. A band does too, and text on it can be read.

    One that only touches the text is taken for its own line: it must stand as far off as that one.
    """
    is_line = line.request.start == line.request.end
    reaches = line.row > text.row if line.side is Side.ON_TOP else line.row >= text.row
    return is_line and reaches and text.text_start - gap <= line.request.start <= text.text_end + gap


def _overlap(start: float, end: float, other_start: float, other_end: float) -> bool:
    return start <= other_end and other_start <= end
