"""An item that cannot be processed because of its own content: which errors say so, what is recorded of them, and when
it is tried again. Pure.
"""

import traceback
from dataclasses import dataclass
from datetime import datetime, timedelta

from dlq_handler.errors import RowRejected, TooSlow

# The database refuses a row, or code meets values that it was not written for. Neither may stop the other items.
CONTENT_ERRORS = (
    RowRejected,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)

STACK_FRAMES = 20
FIRST_DELAY = timedelta(minutes=1)
MOST_DELAY = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why one item is not processed now."""

    error: str
    is_own_error: bool
    """True: an error in the code of dlq-handler. False: the answer of the database."""
    frames: tuple[str, ...] | None
    """Files and lines of an error in the code, without its message."""

    @classmethod
    def of(cls, error: Exception) -> "Refusal":
        if isinstance(error, RowRejected | TooSlow):
            return cls(error=str(error), is_own_error=False, frames=None)
        # The message of an error in the code may quote what the sender wrote: its type is enough.
        frames = traceback.extract_tb(error.__traceback__)[-STACK_FRAMES:]
        return cls(
            error=f"cannot be processed: {type(error).__name__}",
            is_own_error=True,
            frames=tuple(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames),
        )


def retry_delay(attempts: int) -> timedelta:
    """The pause after the `attempts`-th refusal; the first is 1."""
    # 64 minutes are past the hour already; without the inner limit a large count would overflow.
    return min(FIRST_DELAY * (1 << min(max(attempts - 1, 0), 6)), MOST_DELAY)


def next_attempt(now: datetime, attempts: int) -> datetime:
    return now + retry_delay(attempts)
