"""What a game day needs of the broker: a witness of its own, and the removal of everything it made.

The witness sees a copy of the dead letter as it leaves the dead-letter exchange, and the notice as everybody else does.
Its queue is exclusive, so it ends with our connection, however that ends; and it has one name for all, so that a second
game day, which would use the same worker's queue, is refused.
"""

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime

from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.exceptions import ChannelAccessRefused, ChannelLockedResource

from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.broker.connection import BrokerAddress, Connection, broker_errors
from dlq_handler.broker.queue_probe import count
from dlq_handler.broker.topology import unbind
from dlq_handler.clock import monotonic_seconds
from dlq_handler.domain.broker_permissions import WITNESS_QUEUE
from dlq_handler.domain.game_day import GameDayPlan
from dlq_handler.domain.outgoing import Notice
from dlq_handler.domain.read_deaths import newest_death
from dlq_handler.domain.topology import bindings_of_worker
from dlq_handler.domain.worker import GAME_DAY_WORKER_ID
from dlq_handler.errors import Unavailable

_CALL_SECONDS = 10.0


class AnotherGameDay(Exception):
    """Somebody else holds one right now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One message that came to the witness."""

    at: float
    """By the process clock."""
    death_time: datetime | None = None
    by: str | None = None
    """The service that signed it."""


class Witness:
    def __init__(self, address: BrokerAddress, plan: GameDayPlan) -> None:
        self._address, self._plan = address, plan
        self._connection: Connection | None = None
        self._channel: AbstractChannel | None = None
        self._dispatch: Notice | None = None
        self.death: Sighting | None = None
        self.notice: Sighting | None = None
        self.changed = asyncio.Event()

    async def open(self) -> None:
        """Raises `AnotherGameDay`, or `Unavailable`."""
        self._connection = await self._address.connect("game day")
        blueprint = self._plan.blueprint
        async with broker_errors("open the witness queue"), asyncio.timeout(_CALL_SECONDS):
            channel = self._connection.channel(publisher_confirms=False)
            await channel.initialize()
            self._channel = await channel.get_underlay_channel()
            try:
                await self._channel.queue_declare(WITNESS_QUEUE, exclusive=True)
                await self._channel.queue_bind(
                    WITNESS_QUEUE, blueprint.executions_exchange, self._plan.notice_key
                )
                await self._channel.queue_bind(
                    WITNESS_QUEUE, blueprint.dead_letter_exchange, self._plan.routing_key
                )
                # Unacknowledged: whatever is lost with the connection, we could not have timed it.
                await self._channel.basic_consume(WITNESS_QUEUE, self._arrive, no_ack=True)
            except ChannelLockedResource as locked:
                raise AnotherGameDay from locked
            except ChannelAccessRefused as refused:
                hint = "`dlq-handler grants --game-day` prints what the user needs"
                raise Unavailable("broker", f"{refused}; {hint}") from refused

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.end()

    @property
    def is_lost(self) -> bool:
        return self._channel is None or self._channel.closing.done()

    def look_for(self, dispatch: Notice) -> None:
        """To be called before it is published."""
        self._dispatch = dispatch

    async def _arrive(self, message: DeliveredMessage) -> None:
        at, dispatch = monotonic_seconds(), self._dispatch
        # A busy host announces thousands of other ends meanwhile: those are not even parsed.
        if dispatch is None or str(dispatch.execution_id).encode() not in message.body:
            return
        properties = message.header.properties
        if getattr(message.delivery, "routing_key", None) == self._plan.routing_key:
            if properties.message_id == str(dispatch.message_id) and self.death is None:
                death = newest_death(properties.headers or {})
                self.death = Sighting(at=at, death_time=death.time if death else None)
        elif self.notice is None and _names(message.body, dispatch.execution_id):
            self.notice = Sighting(at=at, by=_signature(message.body))
        self.changed.set()


async def remove_all(link: AdminLink, plan: GameDayPlan) -> bool:
    """Remove the worker's queue and the intake's bindings, ours or those of a game day that was killed.

    True when there was a queue. Safe to repeat. The queue goes first: without it nothing dies with these keys.
    """
    had_queue = await count(link, plan.queue) is not None
    if had_queue:
        async with link.channel(f"delete queue {plan.queue!r}") as channel:
            # Neither if-unused nor if-empty: a quorum queue closes the connection over them.
            await channel.queue_delete(plan.queue)
    if await count(link, plan.blueprint.intake_queue) is not None:
        await unbind(link, plan.blueprint, bindings_of_worker(plan.blueprint, GAME_DAY_WORKER_ID))
    return had_queue


def _names(body: bytes, execution_id: int) -> bool:
    try:
        return bool(json.loads(body)["payload"]["execution_id"] == execution_id)
    except (ValueError, KeyError, TypeError):
        return False


def _signature(body: bytes) -> str | None:
    """Only for a body that `_names` the execution."""
    headers = json.loads(body).get("headers")
    by = headers.get("source_service") if isinstance(headers, dict) else None
    return by if isinstance(by, str) else None
