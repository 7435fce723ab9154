"""Read from a broker what a plan needs. Reads only."""

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.snapshot import Snapshot
from dlq_handler.errors import Unavailable
from dlq_handler.host.owners import SYSTEM_QUEUES
from dlq_handler.topology.blueprint import Blueprint
from dlq_handler.topology.checker import probe_exchange, probe_queue

WITHOUT_API = (
    "by AMQP alone bindings are unknown, and every question about a missing queue leaves error lines in the broker's "
    "log; dlq_handler.broker.management_url says where the management API is"
)


async def read_topology(
    admin: AdminConnection, api: ManagementApi, blueprint: Blueprint, *, with_services: bool = False
) -> tuple[Snapshot, tuple[str, ...]]:
    """The exchanges and queues of the blueprint, and what could not be read, in words. Raises `Unavailable`.

    `with_services`: the queues of the host's services as well.
    """
    await admin.open()
    try:
        return await api.snapshot(), ()
    except Unavailable as error:
        limits = (f"{error}; {WITHOUT_API}",)
    names = [*blueprint.queues, *((queue.name for queue in SYSTEM_QUEUES) if with_services else ())]
    exchanges = [await probe_exchange(admin, exchange.name) for exchange in blueprint.exchanges]
    queues = [await probe_queue(admin, name) for name in dict.fromkeys(names)]
    snapshot = Snapshot(
        exchanges=[facts for facts in exchanges if facts is not None],
        queues=[facts for facts in queues if facts is not None],
        is_complete=False,
    )
    return snapshot, limits
