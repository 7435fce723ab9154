"""The auditor's own queue on execution.completed, and the depth of any other, through every restart of the broker.

Durable, and acknowledged only when a completion event is in the ledger: events that are published while the auditor is
disconnected wait in the queue.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable

from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aiormq.exceptions import ChannelNotFoundEntity

from sandbox.attune import topology
from sandbox.attune.amqp import BROKER_AWAY, RPC_SECONDS, loss_as_error, open_connection
from sandbox.auditor.ledger import CompletionEvent

QUEUE = "sandbox.auditor.queue"

# Bound to the dead-letter exchange exactly as Attune binds attune.dlx.queue, and without a consumer: what would arrive
# there stays here to be counted. (An executor empties the real one at once, so its depth proves nothing.)
STOCK_LETTERS = "sandbox.auditor.letters.queue"

CLOSE_SECONDS = 2

TakeCompletion = Callable[[CompletionEvent, bool], None]


class CompletionQueue:
    def __init__(self, amqp_url: str, take: TakeCompletion) -> None:
        """`take` gets each completion event, and whether the broker hands it out again."""
        self._amqp_url = amqp_url
        self._take = take
        self._connection: AbstractConnection | None = None
        self._questions: AbstractChannel | None = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None and not self._connection.is_closed

    async def open(self) -> None:
        """Raises one of BROKER_AWAY when the broker does not answer."""
        await self.close()
        with loss_as_error():
            self._connection = await open_connection(self._amqp_url)
            async with asyncio.timeout(RPC_SECONDS):
                await self._begin(await self._connection.channel())

    async def _begin(self, channel: AbstractChannel) -> None:
        await topology.declare_common(channel)
        queue = await channel.declare_queue(QUEUE, durable=True)
        await queue.bind(topology.EXECUTIONS, "execution.completed")
        letters = await channel.declare_queue(STOCK_LETTERS, durable=True)
        for exchange, key in topology.DEAD_LETTER_QUEUE.bindings:
            await letters.bind(exchange, key)
        await queue.consume(self._receive, exclusive=True)

    async def close(self) -> None:
        connection, self._connection, self._questions = self._connection, None, None
        if connection is not None and not connection.is_closed:
            # One that is half dead must not keep us from opening another.
            with contextlib.suppress(*BROKER_AWAY), loss_as_error():
                async with asyncio.timeout(CLOSE_SECONDS):
                    await connection.close()

    async def depths(self, queues: Iterable[str]) -> dict[str, int]:
        """Number of messages ready in each queue that exists. Raises one of BROKER_AWAY."""
        found: dict[str, int] = {}
        for queue in queues:
            try:
                with loss_as_error():
                    async with asyncio.timeout(RPC_SECONDS):
                        channel = await self._question_channel()
                        declared = await channel.declare_queue(queue, passive=True)
            except ChannelNotFoundEntity:
                continue  # the broker closed the channel over it; the next question opens another
            found[queue] = declared.declaration_result.message_count or 0
        return found

    async def _question_channel(self) -> AbstractChannel:
        if self._connection is None:
            raise ConnectionError("not connected")
        if self._questions is None or self._questions.is_closed:
            self._questions = await self._connection.channel()
        return self._questions

    async def _receive(self, message: AbstractIncomingMessage) -> None:
        self._take(read_completion(message.body), bool(message.redelivered))
        await message.ack()


def read_completion(body: bytes) -> CompletionEvent:
    """An event that cannot be read counts as an event of no execution, so that the audit reports one too many."""
    try:
        document = json.loads(body)
        execution_id, status = int(document["payload"]["execution_id"]), document["payload"]["status"]
        message_id, source = document["message_id"], document["headers"]["source_service"]
    except (ValueError, KeyError, TypeError):
        return CompletionEvent(execution_id=0, message_id=body.hex(), status="unreadable", source="unknown")
    return CompletionEvent(
        execution_id=execution_id, message_id=str(message_id), status=str(status).lower(), source=str(source)
    )
