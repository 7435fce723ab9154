"""Publish what waits in the outbox, once, as the running relay would."""

from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.publish.publisher import Publisher
from dlq_handler.database.engine import Database
from dlq_handler.endings.relay import OutboxRelay, RelayPolicy
from dlq_handler.metric_labels import new_metrics


async def publish_outbox(store: Database, amqp_url: str) -> None:
    publisher = Publisher(BrokerAddress(urls=[amqp_url]), publish_timeout_seconds=5)
    policy = RelayPolicy(
        batch_size=100,
        lease_seconds=60,
        publish_timeout_seconds=5,
        poll_interval_seconds=0.05,
        max_backoff_seconds=300,
    )
    relay = OutboxRelay(store, publisher, policy, holder="relay", metrics=new_metrics())
    try:
        await relay.tick()
    finally:
        await publisher.close()
