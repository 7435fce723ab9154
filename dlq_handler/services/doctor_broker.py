"""Examine the broker: does it answer, may we do what we must, would letters arrive, who consumes what?

Changes nothing, and asks each question by itself.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from dlq_handler.broker import queue_probe
from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.broker.management import ManagementApi
from dlq_handler.broker.queue_probe import QueueCounts
from dlq_handler.broker.rights_probe import NeededRights, missing_rights
from dlq_handler.domain import doctor_broker as says
from dlq_handler.domain.doctor import Consumers, without_broker
from dlq_handler.domain.doctor_database import BROKER_CLOCK, broker_clock
from dlq_handler.domain.observation import Looked, Observation
from dlq_handler.domain.topology_finding import Expectation
from dlq_handler.errors import Unavailable
from dlq_handler.services.doctor_asking import told
from dlq_handler.services.doctor_database import Reading, reading
from dlq_handler.services.topology_check import check_topology

# The API tells whole seconds.
_DATE_ERROR_SECONDS = 1.0


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
        link: AdminLink,
        api: ManagementApi,
        *,
        needed: NeededRights,
        host_queues: Sequence[HostQueue],
        has_canaries: bool = False,
    ) -> None:
        """`has_canaries`: canaries are sent through the intake queue."""
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
            ),
            is_up=True,
            intake=intake,
        )

    def _broker_away(self, trouble: str, expected: Expectation) -> BrokerExam:
        own = (says.SIDECAR, says.FOREIGN_CONSUMERS) if expected.blueprint.has_intake else ()
        resting_on_it = (BROKER_CLOCK, says.BROKER_RIGHTS, says.TOPOLOGY, *own)
        lines = (*resting_on_it, *(one.looked for one in self._host_queues))
        observations = (says.broker(trouble), *(without_broker(looked) for looked in lines))
        return BrokerExam(observations=observations, is_up=False)

    async def _clock(self, database_clock: Reading | None) -> Observation:
        if database_clock is None:
            return BROKER_CLOCK.cannot_tell(
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
            error_seconds=broker.error_seconds + database_clock.error_seconds + _DATE_ERROR_SECONDS,
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
            taken = await look_at_consumers(
                partial(queue_probe.count, self._link), self._api, queue, has_canaries=self._has_canaries
            )
        except Unavailable as error:
            fix = "mend that first, then ask again"
            lines = (says.SIDECAR, says.FOREIGN_CONSUMERS)
            return None, tuple(looked.cannot_tell(str(error), fix) for looked in lines)
        return taken, (
            says.sidecar(taken, queue=queue, own_prefix=prefix),
            says.foreign_consumers(taken, queue=queue, own_prefix=prefix),
        )

    async def _host_queue(self, queue: HostQueue) -> Observation:
        counts = await queue_probe.count(self._link, queue.name)
        taken = None if counts is None else Consumers(count=counts.consumers, ready=counts.ready)
        return says.host_queue(queue.looked, taken, queue=queue.name)


async def look_at_consumers(
    count: Callable[[str], Awaitable[QueueCounts | None]],
    api: ManagementApi,
    queue: str,
    *,
    own_unacknowledged: Callable[[], int | None] = lambda: None,
    has_canaries: bool = False,
) -> Consumers | None:
    """None: no such queue. `count(queue)` asks by AMQP.

    `own_unacknowledged()`: messages that this process holds; None: it does not consume. `has_canaries`: canaries are
    sent through this queue.
    """
    counts = await count(queue)
    if counts is None:
        return None
    own = own_unacknowledged()
    try:
        tags = await api.consumer_tags(queue) if counts.consumers else ()
    except Unavailable:
        tags = None
    # A user without the tag 'monitoring' sees only its own, and everybody sees new ones late.
    lists_fewer = tags is not None and len(tags) < counts.consumers
    return Consumers(
        count=counts.consumers,
        ready=counts.ready,
        tags=None if lists_fewer else tags,
        lists_fewer=lists_fewer,
        unacknowledged=await unacknowledged(api, queue, counts.consumers, own=own),
        own_unacknowledged=own or 0,
        has_canaries=has_canaries,
    )


async def unacknowledged(api: ManagementApi, queue: str, consumers: int, *, own: int | None) -> int | None:
    """Messages that all consumers of the queue hold; None: unknown.

    Without a consumer there are none. A replica that is the only consumer knows its own number better than the
    management API, whose numbers are seconds old.
    """
    if consumers == 0 or (consumers == 1 and own is not None):
        return own or 0
    try:
        return await api.unacknowledged(queue)
    except Unavailable:
        return None
