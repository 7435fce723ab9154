"""Ask one question within a time limit: one that has no answer must not end the others."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from dlq_handler.diagnosis.view import Unknown, UnknownCause
from dlq_handler.errors import Contended, RowRefused, Unavailable, Unreachable

Fact = TypeVar("Fact")

# Where a person waits for the answer.
QUESTION_SECONDS = 5.0

_SERVERS = ("database", "broker")


async def answer_of(asking: Awaitable[Fact], *, within_seconds: float = QUESTION_SECONDS) -> Fact | Unknown:
    """The answer, or why there is none."""
    try:
        async with asyncio.timeout(within_seconds):
            return await asking
    except Unavailable as error:
        # The check that shows it names the server already.
        why = error.what if error.component in _SERVERS else str(error)
        is_unreachable = isinstance(error, Unreachable)
        return Unknown(why, UnknownCause.UNREACHABLE if is_unreachable else UnknownCause.REFUSED)
    except (Contended, RowRefused) as error:
        return Unknown(str(error))
    except TimeoutError:
        return Unknown(f"no answer within {within_seconds:g} s", UnknownCause.UNREACHABLE)
