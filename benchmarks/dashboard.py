"""The pages: how long the server takes for them, with few letters on record and with a thousand times as many.

Each size has a database and a real sidecar of its own; both are asked in turn, so that a busy moment of the machine
hits both. Timed from the request to the last byte of the answer, over a connection that is kept.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from statistics import median

import httpx

from benchmarks.contender import Child, ContenderFailed
from benchmarks.letters_world import GROUPS, letters_stage
from benchmarks.ours import opening, sidecar
from benchmarks.world import Stage, World

STARTED = "replica.started"
ASKED = 30
WARM_UP = 5
REQUEST_SECONDS = 60
NOW, LETTERS = "/", "/letters"
_GROUP = GROUPS[-2].id
# The first two have a bar. The others are the pages that users open next, and are only reported.
PAGES = (
    NOW,
    LETTERS,
    "/?span=24h",
    f"/groups/{_GROUP}",
    f"/letters?group={_GROUP}",
    "/letters?reason=rejected",
    "/letters?search=4711",
    "/letters?since=20h&until=19h",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesCourse:
    seconds: Mapping[int, Mapping[str, Sequence[float]]]
    """By the number of letters on record, then by page."""
    bytes_of_now: int
    """Of `/`, uncompressed, where it is largest."""

    def growth(self, page: str) -> float:
        few, many = (median(self.seconds[size][page]) for size in (min(self.seconds), max(self.seconds)))
        return many / few

    def slowest(self, page: str) -> float:
        return max(median(by_page[page]) for by_page in self.seconds.values())


async def time_pages(world: World, *, sizes: Sequence[int], print_line: Callable[[str], None]) -> PagesCourse:
    seconds: dict[int, dict[str, list[float]]] = {size: {page: [] for page in PAGES} for size in sizes}
    largest = 0
    async with AsyncExitStack() as ends:
        clients = {}
        for size in sizes:
            stage = await ends.enter_async_context(letters_stage(world, letters=size, print_line=print_line))
            clients[size] = await ends.enter_async_context(_served(stage))
        print_line(f"pages: each is asked for {ASKED} times")
        for number in range(WARM_UP + ASKED):
            for page in PAGES:
                for size, client in clients.items():
                    took, answer = await _asked(client, page)
                    if page == NOW:
                        largest = max(largest, len(answer))
                    if number >= WARM_UP:
                        seconds[size][page].append(took)
    return PagesCourse(seconds=seconds, bytes_of_now=largest)


@asynccontextmanager
async def _served(stage: Stage) -> AsyncIterator[httpx.AsyncClient]:
    async with sidecar(stage) as child:
        await opening(child)
        client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{_ui_port(child)}", trust_env=False, timeout=REQUEST_SECONDS
        )
        async with client:
            # The first look at everything takes its time; pages before it have nothing to show.
            async with asyncio.timeout(REQUEST_SECONDS):
                while (await client.get("/api/v1/diagnosis")).status_code != 200:  # noqa: ASYNC110  its event is in another process
                    await asyncio.sleep(0.2)
            yield client


def _ui_port(child: Child) -> int:
    for line in child.log.read_text(errors="replace").splitlines():
        if f'"{STARTED}"' in line:
            return int(json.loads(line)["ui_port"])
    raise ContenderFailed(f"the sidecar did not say where its pages are:\n{child.log_tail()}")


async def _asked(client: httpx.AsyncClient, page: str) -> tuple[float, bytes]:
    began = time.perf_counter()
    answer = await client.get(page)
    took = time.perf_counter() - began
    if answer.status_code != 200:
        raise ContenderFailed(f"{page} answered {answer.status_code}: {answer.text[:500]}")
    return took, answer.content


def lines(course: PagesCourse) -> Iterator[str]:
    sizes = sorted(course.seconds)
    for page in PAGES:
        times = ", ".join(f"{1000 * median(course.seconds[size][page]):.0f} ms of {size}" for size in sizes)
        yield f"server time of {page:<28} with letters on record: {times} ({course.growth(page):.2f} x)"
