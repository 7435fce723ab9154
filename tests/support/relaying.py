"""Publish what waits in the outbox, once, as the running relay would."""

from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.publish.publisher import Publisher
from dlq_handler.database.engine import Database
from dlq_handler.endings.options import OutboxOptions
from dlq_handler.endings.relay import OutboxRelay
from dlq_handler.rooms import new_metrics


async def publish_outbox(store: Database, amqp_url: str) -> None:
    publisher = Publisher(BrokerAddress(urls=[amqp_url]), publish_timeout_seconds=5)
    relay = OutboxRelay(
        store, publisher, OutboxOptions(), publish_timeout_seconds=5, holder="relay", metrics=new_metrics()
    )
    try:
        await relay.tick()
    finally:
        await publisher.close()
