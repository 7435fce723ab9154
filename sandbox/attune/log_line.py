"""One line for each event of a reference process: when, which part, what. Never a payload, never a secret."""

from collections.abc import Callable
from datetime import UTC, datetime

PrintLine = Callable[[str], None]


def silent(_: str) -> None:
    """For services inside a test."""


def to_stdout(part: str) -> PrintLine:
    def print_line(text: str) -> None:
        moment = datetime.now(UTC).astimezone()
        print(f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}  {part:<13}  {text}", flush=True)

    return print_line
