"""The timeline of a game day as an SVG: the whole, and at a scale of its own what came after the expiry. Pure."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from textwrap import wrap

from dlq_handler.domain.game_day_report import Conclusion, GameDayReport, Step

_WIDTH, _HEIGHT = 880, 310
_LEFT, _RIGHT = 40, 840
_COLOURS = {"dispatched": "#64748b", "expired": "#d97706", "judged": "#2563eb", "announced": "#16a34a"}
_VERDICTS = {
    Conclusion.RESCUED: "#16a34a",
    Conclusion.NOT_RESCUED: "#dc2626",
    Conclusion.CANNOT_TELL: "#d97706",
}
_LINE_LENGTH = 120
# Labels of steps that lie closer than this would be written over one another.
_LABEL_WIDTH = 150


def svg(report: GameDayReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: GameDayReport) -> Iterator[str]:
    title = f"dlq-handler game day: {report.conclusion}"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" font-family="system-ui, sans-serif" font-size="13" role="img">'
    )
    yield f"<title>{escape(title)}</title>"
    yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="8" fill="#ffffff"/>'
    colour = _VERDICTS[report.conclusion]
    yield _text(_LEFT, 36, title, size=18, fill=colour)
    about = (
        f"execution {report.execution_id}: {report.why}" if report.execution_id is not None else report.why
    )
    for row, line in enumerate(wrap(about, _LINE_LENGTH)[:2]):
        yield _text(_LEFT, 58 + 18 * row, line, fill="#334155")
    if report.steps:
        yield from _timeline(report.steps, y=136, heading="the whole")
    after = [step for step in report.steps if step.name != "dispatched"]
    if len(after) > 1:
        yield from _timeline(after, y=236, heading="from the expiry on")
    yield "</svg>"


def _timeline(steps: Sequence[Step], *, y: int, heading: str) -> Iterator[str]:
    start, end = steps[0].at, max(step.at for step in steps)
    whole = (end - start).total_seconds()
    places = [
        _LEFT + (_RIGHT - _LEFT) * max(0.0, (step.at - start).total_seconds()) / whole if whole > 0 else _LEFT
        for step in steps
    ]
    yield _text(_LEFT, y - 24, f"{heading}: {in_time(max(0.0, whole))}", fill="#64748b")
    yield f'<line x1="{_LEFT}" y1="{y}" x2="{_RIGHT}" y2="{y}" stroke="#e2e8f0" stroke-width="6"/>'
    for (left, right), step in zip(pairwise(places), steps[1:], strict=True):
        yield (
            f'<line x1="{left:.1f}" y1="{y}" x2="{right:.1f}" y2="{y}" stroke="{_colour(step)}" '
            f'stroke-width="6"/>'
        )
    for row, (place, step) in zip(_rows(places), zip(places, steps, strict=True), strict=True):
        yield f'<circle cx="{place:.1f}" cy="{y}" r="6" fill="{_colour(step)}"/>'
        took = "" if step.took_seconds is None else f" +{in_time(step.took_seconds)}"
        anchor = "end" if place > _RIGHT - _LABEL_WIDTH else "start"
        yield _text(place, y + 22 + 16 * row, f"{step.name}{took}", fill=_colour(step), anchor=anchor)


def _rows(places: Sequence[float]) -> list[int]:
    """On which line below the axis each label goes, so that neighbours do not cover one another."""
    rows: list[int] = []
    for place in places:
        near = [row for row, other in zip(rows, places, strict=False) if abs(place - other) < _LABEL_WIDTH]
        rows.append(next(row for row in range(len(places)) if row not in near))
    return rows


def _colour(step: Step) -> str:
    return _COLOURS.get(step.name, "#64748b")


def _text(x: float, y: float, text: str, *, fill: str, size: int = 13, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" font-size="{size}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )


def in_time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
