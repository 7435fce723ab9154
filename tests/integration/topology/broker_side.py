"""What is really on the broker, as a test asks it."""

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi


async def keys_bound(api: ManagementApi, queue: str, exchange: str = "attune.dlx") -> set[str]:
    snapshot = await api.snapshot()
    return {binding.routing_key for binding in snapshot.bindings_into(queue) if binding.source == exchange}


async def queue_names(api: ManagementApi) -> set[str]:
    return set((await api.snapshot()).queues)


async def declare_queue(link: AdminConnection, name: str, **arguments: str | int) -> None:
    """Keywords with underscores: `x_message_ttl=5`."""
    async with link.channel("declare") as channel:
        await channel.queue_declare(
            name, durable=True, arguments={key.replace("_", "-"): value for key, value in arguments.items()}
        )


async def delete_queue(link: AdminConnection, name: str) -> None:
    async with link.channel("delete") as channel:
        await channel.queue_delete(name)


async def delete_exchange(link: AdminConnection, name: str) -> None:
    async with link.channel("delete") as channel:
        await channel.exchange_delete(name)
