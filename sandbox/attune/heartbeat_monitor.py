"""The executor's look for workers that stopped reporting: it sets them inactive, and nothing sets them back (D10).

Until then the row of a worker that was killed stays active, and executions are dispatched to it.
"""

import asyncio

from sandbox.attune.database import DATABASE_TROUBLE, Database
from sandbox.attune.first_event import first_of
from sandbox.attune.log_line import PrintLine, silent

_SET_INACTIVE = """
UPDATE worker SET status = 'inactive'
 WHERE status = 'active'
   AND (last_heartbeat IS NULL OR last_heartbeat < now() - make_interval(secs => $1))
RETURNING id, name
"""


class HeartbeatMonitor:
    def __init__(
        self,
        database: Database,
        *,
        check_seconds: float,
        unavailable_after_seconds: float,
        print_line: PrintLine = silent,
    ) -> None:
        self._database, self._print_line = database, print_line
        self._check_seconds = check_seconds
        self._unavailable_after_seconds = float(unavailable_after_seconds)

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self.tick()
            except DATABASE_TROUBLE as error:
                self._print_line(f"heartbeat monitor: this look is given up: {type(error).__name__}: {error}")
            await first_of(stop, seconds=self._check_seconds)

    async def tick(self) -> None:
        for row in await self._database.session.fetch(_SET_INACTIVE, self._unavailable_after_seconds):
            self._print_line(f"worker {row['id']} ({row['name']}) does not report: set to inactive")
