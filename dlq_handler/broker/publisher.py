"""Publish messages and learn what became of each: confirmed, unroutable, refused, or unknown.

Promises: mandatory, persistent, confirmed; a batch is two writes, and its confirms are awaited together; the
call is over within `publish_timeout_seconds`; `Unavailable` means that nothing was published, otherwise every
message has its outcome; never two messages in flight with one id, because a return is matched by it.
Never: keeps a connection that owes us an answer, retries, or connects when there is nothing to publish.
"""

import asyncio
from collections.abc import Sequence

from dlq_handler.broker.connection import BrokerAddress, broker_errors
from dlq_handler.broker.flight import (
    Confirmed,
    Flight,
    OutgoingMessage,
    PublishOutcome,
    Refused,
    Unknown,
    Unroutable,
    parts_without_repeats,
)
from dlq_handler.broker.outlet import Outlet
from dlq_handler.broker.publish_record import PublishRecord
from dlq_handler.errors import Unavailable
from dlq_handler.heartbeat import beating, turn

__all__ = ["Confirmed", "OutgoingMessage", "PublishOutcome", "Publisher", "Refused", "Unknown", "Unroutable"]

BLOCKED = "publishing is blocked: the broker is short of memory or disk space"


class Publisher:
    def __init__(
        self, address: BrokerAddress, *, publish_timeout_seconds: float, record: PublishRecord | None = None
    ) -> None:
        """`record`: where it is kept how long each batch took."""
        self.address = address
        self.record = record or PublishRecord()
        self._publish_timeout_seconds = publish_timeout_seconds
        self._outlet: Outlet | None = None
        self._was_open = False
        # One batch at a time, lest two messages with one id are in flight together.
        self._turn = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        return self._outlet is not None and self._outlet.lost is None

    @property
    def is_blocked(self) -> bool:
        """The broker has stopped reading from us, for want of memory or disk."""
        return self._outlet is not None and self._outlet.is_blocked

    async def publish(self, messages: Sequence[OutgoingMessage]) -> list[PublishOutcome]:
        """One outcome per message, in order. `Unavailable`: none of them was published."""
        async with turn(self._turn):
            with self.record.publishing() as publish:
                try:
                    outcomes = await self._publish_in_parts(messages)
                finally:
                    publish.is_blocked = self.is_blocked
                publish.is_confirmed = any(isinstance(one, Confirmed) for one in outcomes)
        return outcomes

    async def close(self) -> None:
        outlet, self._outlet = self._outlet, None
        if outlet is not None:
            await outlet.connection.end()

    async def _publish_in_parts(self, messages: Sequence[OutgoingMessage]) -> list[PublishOutcome]:
        outcomes: list[PublishOutcome] = []
        deadline = asyncio.get_running_loop().time() + self._publish_timeout_seconds
        for part in parts_without_repeats(messages):
            try:
                with beating(self._publish_timeout_seconds):
                    outcomes += await self._publish(part, deadline)
            except Unavailable as error:
                if not outcomes:
                    raise
                outcomes += [Refused(f"not sent: {error.what}")] * len(part)
        return outcomes

    async def _publish(self, part: Sequence[OutgoingMessage], deadline: float) -> list[PublishOutcome]:
        try:
            # Half of the time is kept for the confirms: to begin late would only make outcomes unknown.
            begin_by = deadline - self._publish_timeout_seconds / 2
            async with broker_errors("publish"), asyncio.timeout_at(begin_by):
                outlet = await self._open_outlet()
                missing = {name for name in {m.exchange for m in part} if not await outlet.has_exchange(name)}
                routed = [message for message in part if message.exchange not in missing]
                begun = await outlet.begin(routed) if routed else None
        except BaseException as error:
            await self._drop()
            if isinstance(error, Unavailable) and self.is_blocked:
                raise Unavailable("broker", BLOCKED) from error
            raise
        answers = iter(await self._finish(outlet, *begun, deadline) if begun else [])
        return [
            Unroutable(f"no exchange {message.exchange!r}") if message.exchange in missing else next(answers)
            for message in part
        ]

    async def _finish(
        self, outlet: Outlet, flight: Flight, payload: bytes, deadline: float
    ) -> list[PublishOutcome]:
        try:
            async with broker_errors("publish"), asyncio.timeout_at(deadline):
                await outlet.finish(flight, payload)
        except Unavailable as error:
            outlet.lose(error.what)
        except BaseException:
            outlet.lose("cancelled")
            raise
        finally:
            if outlet.lost is not None:
                await self._drop()
        return flight.outcomes(Unknown(outlet.lost or "no answer"))

    async def _open_outlet(self) -> Outlet:
        if self.is_blocked:
            raise Unavailable("broker", BLOCKED)
        if self._outlet is not None and self._outlet.lost is None:
            return self._outlet
        await self._drop()
        self._outlet = Outlet(await self.address.connect("publisher", is_again=self._was_open))
        self._was_open = True
        await self._outlet.start()
        return self._outlet

    async def _drop(self) -> None:
        """End a connection on which something is unfinished, throwing away what was not yet sent.

        A blocked one is kept until the alarm ends: it is how we learn of that.
        """
        if self._outlet is None:
            return
        self._outlet.lose("given up")
        if not self._outlet.is_blocked:
            outlet, self._outlet = self._outlet, None
            await outlet.connection.drop()
