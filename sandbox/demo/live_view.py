"""The live picture: events scroll above it as lines, and stay when it is removed."""

import math
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sandbox.demo.picture import Condition, Picture
from sandbox.demo.view import View

_MARKS = {
    Condition.ABSENT: ("·", "dim"),
    Condition.STARTING: ("◌", "yellow"),
    Condition.ALIVE: ("●", "green"),
    Condition.KILLED: ("✗", "red"),
    Condition.HANGS: ("‖", "yellow"),
}
_STATUSES = {
    "requested": "cyan",
    "scheduled": "yellow",
    "running": "blue",
    "completed": "green",
    "failed": "red",
    "abandoned": "magenta",
}
_BAR = 8
_IN_LINE = 6


class LiveView(View):
    def __init__(self, out: TextIO, *, began: float) -> None:
        super().__init__(out, began=began)
        self._console = Console(file=out, highlight=False, markup=False, emoji=False)
        self._live: Live | None = None
        self._picture: Picture | None = None

    def open(self, picture: Picture) -> None:
        self._picture = picture
        # Drawn only by `refresh`: a thread of rich's would read the picture while it changes.
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stderr=False)
        self._guard(self._live.start)
        self.refresh()

    def refresh(self) -> None:
        if self._live is not None and self._picture is not None:
            live, shown = self._live, draw(self._picture, self.elapsed_seconds)
            self._guard(lambda: live.update(shown, refresh=True))

    def close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            self._guard(live.stop)

    def act(self, number: int, title: str, look_at: str) -> None:
        self._print(
            "", Text(f"Act {number}. {title}", style="bold"), Text(f"  {look_at}", style="italic"), ""
        )

    def line(self, text: str) -> None:
        # A grid, so that a long line goes on under its own text.
        grid = Table.grid(padding=(0, 2))
        grid.add_row(Text(f"{self.elapsed_seconds:7.1f} s", style="dim"), Text(text, style=_style(text)))
        self._print(grid)

    def text(self, lines: Iterable[str]) -> None:
        self._print(*(Text(line, style=_style(line)) for line in lines))

    def _print(self, *lines: RenderableType) -> None:
        self._guard(lambda: self._console.print(*lines, sep="\n"))


def _style(line: str) -> str:
    if line.startswith(("✗", "BROKEN")):
        return "red"
    if line.startswith("✓"):
        return "green"
    return "dim" if line.startswith("    ") else ""


def draw(picture: Picture, elapsed_seconds: float) -> RenderableType:
    minutes, seconds = divmod(int(elapsed_seconds), 60)
    facts = Table.grid(padding=(0, 3), expand=True)
    facts.add_row(_executions(picture), _queues(picture), _line(picture))
    return Panel(
        Group(
            Text(picture.look_at or " ", style="italic", overflow="ellipsis", no_wrap=True),
            "",
            _parts(picture),
            "",
            facts,
        ),
        title=Text(picture.act, style="bold"),
        title_align="left",
        subtitle=Text(f"{minutes}:{seconds:02} ", style="dim"),
        subtitle_align="right",
        border_style="dim",
    )


def _parts(picture: Picture) -> RenderableType:
    """Who lives."""
    grid = Table.grid(padding=(0, 3))
    names = list(picture.conditions)
    half = math.ceil(len(names) / 2)
    for row in (names[:half], names[half:]):
        grid.add_row(*(_part(name, picture.conditions[name]) for name in row))
    return grid


def _part(name: str, condition: Condition) -> Text:
    mark, style = _MARKS[condition]
    # The one that no mark makes clear: it is neither alive nor dead.
    word = " hangs" if condition is Condition.HANGS else ""
    return Text.assemble(
        (f"{mark} ", style), (name, "" if condition is Condition.ALIVE else "dim"), (word, style)
    )


def _executions(picture: Picture) -> RenderableType:
    counts = picture.observed.statuses()
    most = max([1, *counts.values()])
    grid = Table.grid(padding=(0, 1))
    for status, style in _STATUSES.items():
        count = counts.get(status, 0)
        bar = "█" * math.ceil(_BAR * count / most)
        grid.add_row(status, Text(f"{count:>4}", style="" if count else "dim"), Text(bar, style=style))
    return Group(Text("executions", style="bold"), grid)


def _queues(picture: Picture) -> RenderableType:
    names = {f"worker.{number}.executions": name for name, number in picture.observed.workers.items()}
    grid = Table.grid(padding=(0, 1))
    for queue, ready in picture.observed.queues.items():
        grid.add_row(names.get(queue, queue), Text(f"{ready:>4}", style="bold yellow" if ready else "dim"))
    return Group(Text("messages waiting", style="bold"), grid)


def _line(picture: Picture) -> RenderableType:
    observed = picture.observed
    holding = [str(number) for number, status in observed.line if status == "active"]
    waiting = [str(number) for number, status in observed.line if status != "active"]
    more = f" +{len(waiting) - _IN_LINE}" if len(waiting) > _IN_LINE else ""
    grid = Table.grid(padding=(0, 1))
    grid.add_row("slots", Text(" ".join(holding) or "free", style="yellow" if holding else "green"))
    grid.add_row(
        "waiting",
        Text(" ".join(waiting[:_IN_LINE]) + more or "none", style="yellow" if waiting else "green"),
    )
    grid.add_row("")
    grid.add_row("rescued", Text(str(observed.rescued()), style="bold"))
    grid.add_row("completion_published", Text(str(len(observed.completion_ids)), style="bold"))
    return Group(Text("line of core.slow", style="bold"), grid)
