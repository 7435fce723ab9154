"""Publish a message of dlq-handler's own, to check whether the broker takes publishes now.

Promises: nothing of the host is touched, and nothing remains. The exchange and the queue have a new name for each
connection. The queue is exclusive, so it ends with the connection that declared it, and the exchange ends with its last
queue. The publisher is the one of the completion events: a broker that blocks publishes blocks its connection.
"""

from uuid import uuid4

from aiormq.exceptions import ChannelAccessRefused

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.publish.message import Confirmed, OutgoingMessage
from dlq_handler.broker.publish.publisher import Publisher
from dlq_handler.errors import Unavailable

PUBLISH_CHECK_PREFIX = "dlq_handler.publish_check."
PUBLISH_CHECK_PATTERN = r"dlq_handler\.publish_check\.[0-9a-f\-]+"
"""As a part of a permission of the broker's user."""


class PublishCheckRefused(Exception):
    """The broker user lacks a right; the text names it."""


class PublishChecker:
    def __init__(self, admin: AdminConnection, publisher: Publisher) -> None:
        self._admin, self._publisher = admin, publisher
        self._declared_incarnation: int | None = None
        self._name = ""

    async def publish(self) -> None:
        """Raises `Unavailable`, `PublishCheckRefused`. The publisher's recorder keeps the result."""
        incarnation = await self._admin.open()
        if incarnation != self._declared_incarnation:
            await self._declare()
            self._declared_incarnation = incarnation
        check = OutgoingMessage(
            message_id=self._name, correlation_id=self._name, exchange=self._name, routing_key="", body=b"{}"
        )
        [outcome] = await self._publisher.publish([check])
        if not isinstance(outcome, Confirmed):
            # The queue may have been deleted: the next check declares another.
            self._declared_incarnation = None
            raise Unavailable("broker", f"a publish check was not confirmed: {outcome.text}")

    async def _declare(self) -> None:
        self._name = name = f"{PUBLISH_CHECK_PREFIX}{uuid4()}"
        async with self._admin.channel("prepare a publish check") as channel:
            try:
                await channel.exchange_declare(name, exchange_type="fanout", auto_delete=True)
                await channel.queue_declare(
                    name,
                    exclusive=True,
                    # Explicit, because a vhost may have another default type.
                    arguments={"x-queue-type": "classic", "x-max-length": 1, "x-message-ttl": 1000},
                )
                await channel.queue_bind(name, name)
            except ChannelAccessRefused as refused:
                raise PublishCheckRefused(str(refused)) from refused
