"""The queues of the vhost with their owners, and what a stop would do with them, for pages that are loaded often.

Promises: an answer is kept for a while; longer without the management API, because each question about a missing queue
leaves error lines in the log of the broker. Reads only.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.errors import Unavailable
from dlq_handler.host.owners import owning_worker
from dlq_handler.lifecycle.flow import Flow
from dlq_handler.lifecycle.flow_blueprint import WORKER_PARAM, FlowQueue, worker_blueprint
from dlq_handler.lifecycle.flows_sql import list_flows
from dlq_handler.lifecycle.known_queues import QueueNames
from dlq_handler.lifecycle.queue_list import QueueRow
from dlq_handler.lifecycle.queue_lister import list_all_queues

KEPT_SECONDS = 15.0
KEPT_PROBED_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadQueues:
    rows: tuple[QueueRow, ...]
    limits: tuple[str, ...] = ()
    """What could not be read, and why; empty: nothing."""
    at: datetime
    """By the clock of this machine."""
    flow_queues: Mapping[str, FlowQueue] = field(default_factory=dict)
    """The queues that a stop would delete: of flows, and of workers."""


class QueueReader:
    def __init__(
        self, database: Database, admin: AdminConnection, api: ManagementApi, names: QueueNames
    ) -> None:
        self._database, self._names = database, names
        self._list = partial(list_all_queues, database, admin, api, names)
        self._turn = asyncio.Lock()
        self._kept: tuple[float, ReadQueues] | None = None

    async def latest(self) -> ReadQueues:
        """At most `KEPT_SECONDS` old, or `KEPT_PROBED_SECONDS` where something could not be read.

        Raises `Unavailable` when the broker does not answer.
        """
        async with self._turn:
            if self._kept is None or monotonic_seconds() >= self._kept[0]:
                found = await self._read()
                kept_seconds = KEPT_PROBED_SECONDS if found.limits else KEPT_SECONDS
                self._kept = (monotonic_seconds() + kept_seconds, found)
            return self._kept[1]

    async def _read(self) -> ReadQueues:
        listed = await self._list()
        flows: Sequence[Flow] = ()
        # The limits of the list say that the database does not answer.
        with suppress(Unavailable):
            flows = await list_flows(self._database)
        return ReadQueues(
            rows=listed.rows,
            limits=listed.limits,
            at=datetime.now(UTC),
            flow_queues=self._flow_queues(flows, listed.rows),
        )

    def _flow_queues(self, flows: Sequence[Flow], rows: Sequence[QueueRow]) -> Mapping[str, FlowQueue]:
        ids = {owning_worker(row.name, self._names.workers) for row in rows if row.exists}
        blueprint = worker_blueprint(self._names.workers)
        found = {
            queue.name: queue
            for one in ids
            if one is not None and one > 0
            for queue in blueprint.expand({WORKER_PARAM: str(one)}).flow
        }
        return found | {queue.name: queue for flow in flows if flow.status.is_live for queue in flow.queues}
