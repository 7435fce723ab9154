"""Everything that the routes of the ui listener use, gathered once.

Routes read the database through the statements of each room and the last observation through the diagnoser. They change
something through `operating` alone.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.diagnosis.diagnoser import Diagnoser
from dlq_handler.diagnosis.view import ObservedWorker, TopologyFact, Unknown
from dlq_handler.history.options import RetentionPolicy
from dlq_handler.host.names import COMPLETED_KEY
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.operations.operations import Operations
from dlq_handler.safety.options import BrakeOptions
from dlq_handler.web.errors import RETRY_SECONDS, Refused
from dlq_handler.web.options import UiOptions
from dlq_handler.web.services import Services
from dlq_handler.web.users import Tokens

MOST_STREAMS = 64
SEARCH_WAIT_SECONDS = 10.0


class SearchTurns:
    """Limits the searches that run at a time: they are slow, and other requests need a database connection too."""

    def __init__(self, most: int, *, wait_seconds: float = SEARCH_WAIT_SECONDS) -> None:
        self._most, self._wait_seconds = most, wait_seconds
        self._places = asyncio.Semaphore(most)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Raises `Refused` (503) when no search ends in time."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._places.acquire()
        except TimeoutError:
            refused = Refused(503, f"{self._most} searches are under way, which is the limit. Try again.")
            refused.headers = {"Retry-After": str(RETRY_SECONDS)}
            raise refused from None
        try:
            yield
        finally:
            self._places.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class UiWorld:
    options: UiOptions
    database: Database
    diagnoser: Diagnoser
    operating: Operations
    services: Services
    brake_policy: BrakeOptions
    retention: RetentionPolicy
    ttl_seconds: float
    """Of the workers' queues, as configured."""
    replica: str
    tokens: Tokens
    """Empty: every user of this machine may operate."""
    completed_key: str = COMPLETED_KEY
    """Routing key of completion events: the outbox holds requests too."""
    # Below the time that proxies and load balancers allow a silent connection.
    alive_every_seconds: float = 15.0
    """Interval of the `alive` events of a stream."""
    most_streams: int = MOST_STREAMS
    """Maximum number of event streams open at a time."""
    searches: SearchTurns = field(default_factory=lambda: SearchTurns(2))
    """Shared by the API and the dashboard, as both use the same pool of connections."""
    warning_rate: float = 10.0
    """Dead letters a minute beyond which the chart and the alert warn."""
    is_shadow: bool = False
    worker_queues: WorkerQueueNames = field(default_factory=WorkerQueueNames)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the replica stops: open streams must not delay it."""

    @property
    def environment(self) -> str:
        """Which installation this is, in a word."""
        return self.options.environment or self.replica

    @property
    def now(self) -> datetime:
        """The database's clock at the last observation plus the time since; before the first one this machine's."""
        seen = self.diagnoser.latest
        if seen is None:
            return datetime.now(UTC)
        return seen.at + timedelta(seconds=max(0.0, monotonic_seconds() - seen.taken_at))

    @property
    def seen_at(self) -> datetime:
        """Time of the last observation."""
        seen = self.diagnoser.latest
        return self.now if seen is None else seen.at

    def runbook_link(self, page: str | None) -> str | None:
        """`page` as a diagnosis names it. None: it names no page, or the address of the runbook is not set."""
        if page is None or self.options.runbook_url is None:
            return None
        return f"{self.options.runbook_url}#{page.partition('#')[2]}"

    def workers(self) -> Sequence[ObservedWorker] | Unknown:
        """As last observed, a few seconds ago: requests of users cause no queries to the servers."""
        seen = self.diagnoser.latest
        return Unknown("no observation has been made yet") if seen is None else seen.view.workers

    def topology(self) -> TopologyFact | Unknown:
        seen = self.diagnoser.latest
        return Unknown("no observation has been made yet") if seen is None else seen.view.topology
