"""Try the ways to a server in order, say which one was taken, and when all are closed say how to open one."""

import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

from sandbox.server_programs.errors import SourceFailed, SourceUnavailable
from sandbox.servers.errors import NoServer, StartFailed

START_TRIES = 3
REASON_CHARACTERS = 300

NO_SOURCE = """\
no {server} to be had. Tried, in this order:
{tried}
Any one of these opens a way:
  - install {server}; it is started privately, the system's service is left alone
  - on Debian or Ubuntu let apt-get reach a mirror; packages are unpacked, nothing is installed"""
SHARED_SOURCES_HELP = """
  - set {variable} to the URL of one that may be used for tests
  - start Docker, and allow this user to use it"""


class Found(Protocol):
    @property
    def origin(self) -> str: ...


class Startable(Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...


FoundServer = TypeVar("FoundServer", bound=Found)
StartableServer = TypeVar("StartableServer", bound=Startable)
PrintLine = Callable[[str], None]


def print_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


async def first_available(
    server: str,
    ways: Mapping[str, Callable[[], Awaitable[FoundServer]]],
    *,
    variable: str = "",
    print_line: PrintLine | None = None,
) -> FoundServer:
    """`variable` names the server that would have been used had it been set; private ones have none."""
    tried = [f"  - {variable} is not set"] if variable else []
    for name, take in ways.items():
        try:
            found = await take()
        except SourceUnavailable as closed:
            tried.append(f"  - {name}: {closed}")
            if print_line and isinstance(closed, SourceFailed):
                print_line(f"{server}: {in_one_line(closed)}; trying the next way")
        else:
            if print_line:
                print_line(f"{server}: {found.origin}")
            return found
    shared_help = SHARED_SOURCES_HELP.format(variable=variable) if variable else ""
    raise NoServer(NO_SOURCE.format(server=server, tried="\n".join(tried)) + shared_help)


def in_one_line(error: Exception) -> str:
    """An engine may pass on a page of a proxy."""
    line = " ".join(str(error).split())
    return line if len(line) <= REASON_CHARACTERS else f"{line[:REASON_CHARACTERS]}…"


async def started(make: Callable[[], StartableServer]) -> StartableServer:
    """A port that was free may be taken by another server that is starting just now: then once more, with new
    ones.
    """
    for attempt in range(1, START_TRIES + 1):
        server = make()
        try:
            await server.start()
        except StartFailed:
            await server.close()
            if attempt == START_TRIES:
                raise
        except BaseException:
            await server.close()
            raise
        else:
            return server
    raise AssertionError("unreachable: the last attempt returns or raises")
