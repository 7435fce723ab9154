"""What the audience sees: a live picture on a terminal, one line an event anywhere else.

A closed output does not fail the demo: nothing more is shown, and `on_closed` is called once.
"""

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from typing import TextIO

from sandbox.demo.picture import Picture


class View:
    """One line an event, without escape codes."""

    def __init__(self, out: TextIO, *, began: float) -> None:
        """`began`: by the monotonic clock."""
        self.on_closed: Callable[[], None] = lambda: None
        self._out, self._began = out, began
        self._is_closed = False

    def open(self, picture: Picture) -> None:
        """Begin to show it, where pictures can be shown."""

    def refresh(self) -> None:
        """The picture has changed."""

    def close(self) -> None:
        """From now on there are only lines."""

    @property
    def width(self) -> int:
        return shutil.get_terminal_size().columns

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._began

    def act(self, number: int, title: str, look_at: str) -> None:
        self.text(["", f"Act {number}. {title}", f"  {look_at}", ""])

    def line(self, text: str) -> None:
        self.text([f"{self.elapsed_seconds:7.1f} s  {text}"])

    def text(self, lines: Iterable[str]) -> None:
        """As it stands."""
        self._guard(lambda: print(*lines, sep="\n", file=self._out, flush=True))

    def _guard(self, write: Callable[[], None]) -> None:
        if self._is_closed:
            return
        try:
            write()
        except OSError:  # a closed pipe, a terminal that was shut
            self._is_closed = True
            # Or the interpreter complains when it flushes at exit.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())
            self.on_closed()


def open_view(out: TextIO = sys.stdout, *, began: float) -> View:
    if out.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb", "unknown"}:
        from sandbox.demo.live_view import LiveView  # noqa: PLC0415 - only where it is shown

        return LiveView(out, began=began)
    return View(out, began=began)
