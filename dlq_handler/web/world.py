"""Everything that the routes of the ui listener use, gathered once.

Routes read the database through the statements of each room and the last observation through the diagnoser. They change
something through `operating` and `flow_operations` alone. Services of the other event loop, which owns their
connections, are called through `Services`.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_probe import QueueCounts, count_queue
from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.reprocess import Reprocessed, Reprocessor
from dlq_handler.diagnosis.diagnoser import Diagnoser
from dlq_handler.diagnosis.view import ObservedWorker, TopologyFact, Unknown
from dlq_handler.explain.explain import Explanation, explain
from dlq_handler.explain.options import ExplainPolicy
from dlq_handler.history.options import RetentionPolicy
from dlq_handler.host.names import COMPLETED_KEY
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.lifecycle.queue_reader import QueueReader, ReadQueues
from dlq_handler.operations.flow_operations import FlowOperations
from dlq_handler.operations.operations import Operations
from dlq_handler.safety.options import BrakeOptions
from dlq_handler.timeouts.case import WorkerQueues
from dlq_handler.topology.consumers import Consumers, read_consumers
from dlq_handler.web.errors import RETRY_SECONDS, Refused
from dlq_handler.web.options import UiOptions
from dlq_handler.web.own_thread import OtherLoop
from dlq_handler.web.users import Tokens
from dlq_handler.workers.connection_source import ConnectionSource
from dlq_handler.workers.queue_observer import WorkerQueueObserver

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


# Longer than the broker's own deadlines.
BROKER_SECONDS = 15.0
# Thousands of queues are counted one by one.
LIST_SECONDS = 30.0
# Longer than a transaction's own deadline, with the default timeouts.
REPROCESS_SECONDS = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    loop: OtherLoop
    database: Database
    """The ui's own, which belongs to the calling loop. All others belong to `loop`."""
    workers: WorkerQueueObserver
    link: AdminConnection
    management: ManagementApi
    consumer: QueueConsumer[DeadLetter]
    reprocessor: Reprocessor
    connections: ConnectionSource | None
    queues: QueueReader
    explain_policy: ExplainPolicy

    async def explain(self, execution_id: int) -> Explanation | None:
        """None: no record of it exists. Asks the broker about the one queue that the execution depends on."""
        return await explain(
            self.database,
            execution_id,
            self.explain_policy,
            observer=self,
            connections=self.connections,
        )

    async def count_intake(self) -> Consumers | None:
        """None: the intake queue does not exist."""
        return await self.loop.call(
            lambda: read_consumers(
                partial(count_queue, self.link),
                self.management,
                self.consumer.queue,
                own_unacknowledged=lambda: self.consumer.unacknowledged,
            ),
            within_seconds=BROKER_SECONDS,
        )

    async def read_queues(self) -> ReadQueues:
        """The queues of the vhost, with their owners; some seconds old."""
        return await self.loop.call(self.queues.latest, within_seconds=LIST_SECONDS)

    async def reprocess(self, record_id: int) -> Reprocessed | None:
        """Where the intake processes dead letters: with its brake, its safety gate, its relay."""
        return await self.loop.call(
            lambda: self.reprocessor.reprocess(record_id), within_seconds=REPROCESS_SECONDS
        )

    async def observe(self, worker_ids: Collection[int]) -> WorkerQueues:
        return await self.loop.call(
            lambda: self.workers.observe_quietly(worker_ids), within_seconds=BROKER_SECONDS
        )

    async def longest_ttl_ms(self, worker_ids: Sequence[int] = ()) -> int | None:
        return await self.loop.call(
            lambda: self.workers.longest_ttl_ms(worker_ids), within_seconds=BROKER_SECONDS
        )

    async def count_queue(self, queue: str) -> QueueCounts | None:
        return await self.loop.call(lambda: count_queue(self.link, queue), within_seconds=BROKER_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class UiWorld:
    options: UiOptions
    database: Database
    diagnoser: Diagnoser
    operating: Operations
    flow_operations: FlowOperations
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
    lifecycle_enabled: bool = False
    """Flows are started, stopped and deleted."""
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
