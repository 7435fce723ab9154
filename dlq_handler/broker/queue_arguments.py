"""The arguments with which RabbitMQ declares a queue of these properties. Pure."""

from dlq_handler.broker.admin.snapshot import DEAD_LETTER_EXCHANGE_ARGUMENT, TTL_ARGUMENT
from dlq_handler.broker.pubsub import QueueProperties, QueueType

TYPE_ARGUMENT = "x-queue-type"


def queue_arguments(properties: QueueProperties) -> dict[str, str | int]:
    """As stock services declare them: a classic queue has no argument for its type, or their declare would fail."""
    arguments: dict[str, str | int] = {}
    if (ttl_ms := properties.get("ttl_ms")) is not None:
        arguments[TTL_ARGUMENT] = ttl_ms
    if (dlx := properties.get("dlx")) is not None:
        arguments[DEAD_LETTER_EXCHANGE_ARGUMENT] = dlx
    if (kind := properties.get("type", QueueType.CLASSIC)) is not QueueType.CLASSIC:
        arguments[TYPE_ARGUMENT] = str(kind)
    return arguments
