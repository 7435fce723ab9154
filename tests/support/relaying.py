"""Publish what waits in the outbox, once, as the running relay would."""

from dlq_handler.broker.connection import BrokerAddress
from dlq_handler.broker.publisher import Publisher
from dlq_handler.services.observer import Observer
from dlq_handler.services.outbox_relay import OutboxRelay, RelayPolicy
from dlq_handler.store.engine import Database


async def publish_outbox(store: Database, amqp_url: str) -> None:
    publisher = Publisher(BrokerAddress(urls=[amqp_url]), publish_timeout_seconds=5)
    policy = RelayPolicy(
        batch_size=100,
        lease_seconds=60,
        publish_timeout_seconds=5,
        poll_interval_seconds=0.05,
        max_backoff_seconds=300,
    )
    relay = OutboxRelay(store, publisher, policy, holder="relay", observer=Observer())
    try:
        await relay.tick()
    finally:
        await publisher.close()
