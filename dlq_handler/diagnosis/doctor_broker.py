"""Examine the broker: does it answer, may we do what we must, would letters arrive, who consumes what?

Changes nothing, and asks each question by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from dlq_handler.broker.admin import queue_probe
from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.rights_probe import NeededRights, missing_rights
from dlq_handler.diagnosis import doctor_broker_lines as says
from dlq_handler.diagnosis.doctor_asking import told
from dlq_handler.diagnosis.doctor_database import Reading, reading
from dlq_handler.diagnosis.doctor_database_lines import BROKER_CLOCK, broker_clock
from dlq_handler.diagnosis.doctor_lines import without_broker
from dlq_handler.diagnosis.observation import Looked, Observation
from dlq_handler.errors import Unavailable
from dlq_handler.topology.checker import check_topology
from dlq_handler.topology.consumers import Consumers, read_consumers
from dlq_handler.topology.finding import Expectation
from dlq_handler.workers.connection_source import ConnectionSource

# Workers whose connections are asked for, to see whether the API tells them.
_MOST_ASKED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HostQueue:
    """A queue that somebody of the host's must consume."""

    looked: Looked
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerExam:
    observations: tuple[Observation, ...]
    is_up: bool
    intake: Consumers | None = None
    """None: there is no such queue, or nobody could tell."""


class BrokerExaminer:
    def __init__(
        self,
        link: AdminConnection,
        api: ManagementApi,
        *,
        needed: NeededRights,
        host_queues: Sequence[HostQueue],
        has_canaries: bool = False,
        connections: ConnectionSource | None,
        run_limit_seconds: float,
    ) -> None:
        """`has_canaries`: canaries are sent through the intake queue. `connections` None: workers reconnect."""
        self._connections, self._run_limit_seconds = connections, run_limit_seconds
        self._has_canaries = has_canaries
        self._link, self._api, self._needed, self._host_queues = link, api, needed, host_queues
        self._trouble: str | None = "it was not asked"

    async def reach(self) -> None:
        """Find out whether it answers; to be done first."""
        try:
            await self._link.open()
            self._trouble = None
        except Unavailable as error:
            self._trouble = error.what

    async def examine(self, expected: Expectation, database_clock: Reading | None) -> BrokerExam:
        if self._trouble is not None:
            return self._broker_away(self._trouble, expected)
        intake, about_intake = await self._intake(expected)
        return BrokerExam(
            observations=(
                says.broker(None),
                await told(BROKER_CLOCK, self._clock(database_clock)),
                await told(says.BROKER_RIGHTS, self._rights()),
                await told(says.TOPOLOGY, self._topology(expected)),
                *about_intake,
                *[await told(one.looked, self._host_queue(one)) for one in self._host_queues],
                await told(says.RESTARTS, self._restarts(expected)),
            ),
            is_up=True,
            intake=intake,
        )

    def _broker_away(self, trouble: str, expected: Expectation) -> BrokerExam:
        own = (says.SIDECAR, says.OTHER_CONSUMERS) if expected.blueprint.has_intake else ()
        resting_on_it = (BROKER_CLOCK, says.BROKER_RIGHTS, says.TOPOLOGY, *own)
        lines = (*resting_on_it, *(one.looked for one in self._host_queues), says.RESTARTS)
        observations = (says.broker(trouble), *(without_broker(looked) for looked in lines))
        return BrokerExam(observations=observations, is_up=False)

    async def _clock(self, database_clock: Reading | None) -> Observation:
        if database_clock is None:
            return BROKER_CLOCK.unknown(
                "the database is unreachable", "start the database or correct its URL, then ask again"
            )
        asked_at = datetime.now(UTC)
        try:
            clock = await self._api.clock()
        except Unavailable as error:
            return broker_clock(None, trouble=str(error))
        broker = reading(clock, asked_at=asked_at, answered_at=datetime.now(UTC))
        return broker_clock(
            broker.ahead_seconds - database_clock.ahead_seconds,
            error_seconds=broker.error_seconds + database_clock.error_seconds,
        )

    async def _rights(self) -> Observation:
        return says.broker_rights(await missing_rights(self._link, self._needed))

    async def _topology(self, expected: Expectation) -> Observation:
        report = await check_topology(self._link, self._api, expected)
        return says.topology(report.topology, report.limits)

    async def _intake(self, expected: Expectation) -> tuple[Consumers | None, tuple[Observation, ...]]:
        if not expected.blueprint.has_intake:
            # Nobody is to consume it, and whoever does takes nothing from us.
            return None, ()
        queue, prefix = expected.blueprint.intake_queue, expected.own_consumer_tag_prefix
        try:
            taken = await read_consumers(
                partial(queue_probe.count_queue, self._link),
                self._api,
                queue,
                has_canaries=self._has_canaries,
            )
        except Unavailable as error:
            fix = "repair that first, then ask again"
            lines = (says.SIDECAR, says.OTHER_CONSUMERS)
            return None, tuple(looked.unknown(str(error), fix) for looked in lines)
        return taken, (
            says.sidecar(taken, queue=queue, own_prefix=prefix),
            says.other_consumers(taken, queue=queue, own_prefix=prefix),
        )

    async def _restarts(self, expected: Expectation) -> Observation:
        trouble = None
        if self._connections is not None:
            # Without a worker, too, the API must answer: that a queue is missing is an answer.
            workers = sorted(expected.worker_ids or (1,))[:_MOST_ASKED]
            await self._connections.ask(dict.fromkeys(workers))
            trouble = self._connections.api_trouble
        return says.restarts(
            reconnects=self._connections is None, run_limit_seconds=self._run_limit_seconds, trouble=trouble
        )

    async def _host_queue(self, queue: HostQueue) -> Observation:
        counts = await queue_probe.count_queue(self._link, queue.name)
        taken = None if counts is None else Consumers(count=counts.consumers, ready=counts.ready)
        return says.host_queue(queue.looked, taken, queue=queue.name)
