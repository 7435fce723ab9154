"""Reads the figures of the first pages again and again, so that an outage of the database leaves those of the last
observation, not those of the last visit: at night there may have been no visit for hours.
"""

import asyncio

from dlq_handler.clock import monotonic_seconds
from dlq_handler.dashboard.pages import now, workers
from dlq_handler.dashboard.site import Site
from dlq_handler.loop import every

# Workers come from the last observation, in memory. All other figures cost a dozen short transactions.
WORKERS_SECONDS = 10.0
FIGURES_SECONDS = 60.0


class PageRefresher:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._read_at = float("-inf")

    async def run(self, stop: asyncio.Event) -> None:
        await every(WORKERS_SECONDS, self.tick, stop, name="page_refresher")

    async def tick(self) -> None:
        self._site.keep_workers()
        if monotonic_seconds() - self._read_at >= FIGURES_SECONDS:
            self._read_at = monotonic_seconds()
            await now.read(self._site, "1h")
            await workers.read(self._site)
