"""Wait for a fact instead of sleeping: quick when it is true soon, and a clear failure when it never is."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

Fact = TypeVar("Fact")

LONGER = 1.2
LONGEST_PAUSE_SECONDS = 0.1


@overload
async def eventually(
    check: Callable[[], Awaitable[Fact]], *, timeout: float = ..., every: float = ...
) -> Fact: ...


@overload
async def eventually(check: Callable[[], Fact], *, timeout: float = ..., every: float = ...) -> Fact: ...


async def eventually(check: Callable[[], Any], *, timeout: float = 30, every: float = 0.02) -> Any:
    """Ask until `check` answers something true, and return that. None, 0, False and empty mean "not yet".

    So does an AssertionError inside `check`; when time is up it is the failure, with the actual and the expected
    value. Any other exception is a bug and passes through.

    The longer it takes, the less often it asks: fifty questions a second take a good part of a core from those that
    are asked, and most long waits are for a process that starts.
    """
    end = time.monotonic() + timeout
    pause = every
    while True:
        answer: object = None
        failure: AssertionError | None = None
        try:
            asked = check()
            answer = await asked if inspect.isawaitable(asked) else asked
        except AssertionError as not_yet:
            failure = not_yet
        if answer:
            return answer
        if time.monotonic() > end:
            raise failure or AssertionError(f"still {answer!r} after {timeout} s: {source_of(check)}")
        await asyncio.sleep(pause)
        pause = min(pause * LONGER, max(every, LONGEST_PAUSE_SECONDS))


def source_of(check: Callable[[], object]) -> str:
    try:
        return inspect.getsource(check).strip()
    except (OSError, TypeError):
        return repr(check)
