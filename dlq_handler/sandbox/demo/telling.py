"""Tell what happens while it happens: one line an event, with the seconds since the start."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One promise, as the demo saw it."""

    promise: str
    expected: object
    seen: object
    look: str
    """Where it was counted."""

    @property
    def held(self) -> bool:
        return self.expected == self.seen


class Teller:
    def __init__(self) -> None:
        self._start = time.monotonic()
        self._colours = sys.stdout.isatty()

    def act(self, title: str) -> None:
        print(f"\n{self._bold(title)}", flush=True)

    def line(self, text: str) -> None:
        print(f"{time.monotonic() - self._start:7.1f} s  {text}", flush=True)

    def table(self, rows: Sequence[Kept]) -> bool:
        """The closing table; true when every promise held."""
        cells = [
            ("", "promise", "expected", "seen", "counted from"),
            *(
                ("ok" if row.held else "BROKEN", row.promise, str(row.expected), str(row.seen), row.look)
                for row in rows
            ),
        ]
        widths = [max(len(row[column]) for row in cells) for column in range(5)]
        print()
        for number, row in enumerate(cells):
            text = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            print(self._bold(text) if number == 0 else text, flush=True)
        return all(row.held for row in rows)

    def _bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self._colours else text
