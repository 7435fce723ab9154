"""Report a program that was fetched into the cache."""

import contextlib
import time
from collections.abc import Awaitable

from sandbox.server_programs.errors import SourceUnavailable


async def print_when_found(program: str, fetching: Awaitable[object]) -> None:
    began = time.monotonic()
    with contextlib.suppress(SourceUnavailable):
        await fetching
        print(f"./run: {program} is ready after {time.monotonic() - began:.0f} s", flush=True)
