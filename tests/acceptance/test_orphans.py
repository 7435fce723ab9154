"""Queues of a worker that is gone are retired by themselves, when that is enabled, and only those."""

from urllib.parse import urlsplit

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_probe import existing_queues
from dlq_handler.broker.client.connection import BrokerAddress
from sandbox.servers import RabbitMQ
from tests.support.eventually import eventually
from tests.support.stock_world import StockWorld


def queues_of(worker_id: int) -> list[str]:
    return [f"worker.{worker_id}.{kind}" for kind in ("cancel", "executions", "packs")]


async def test_queues_of_a_worker_whose_row_was_deleted_are_retired_and_those_of_others_stay(
    world: StockWorld, rabbitmq: RabbitMQ
) -> None:
    gone, silent = await world.lost_worker("gone", ttl_ms=300_000), await world.lost_worker("silent")
    dispatched = await world.executor.schedule_many(3, gone.id)
    # Deleting the row changes the executions: their messages are of an earlier attempt.
    await world.sql("DELETE FROM worker WHERE id = $1", gone.id)
    management = urlsplit(rabbitmq.management_url)
    async with (
        world.sidecar(
            lifecycle__enabled="true",
            lifecycle__orphans__enabled="true",
            lifecycle__settle_seconds="0",
            lifecycle__interval_seconds="0.2",
            broker__management_url=f"http://{rabbitmq.user}:{rabbitmq.password}@{management.netloc}",
        ) as sidecar,
        AdminConnection(BrokerAddress(urls=[world.amqp_url])) as admin,
    ):

        async def is_retired() -> bool:
            return not await existing_queues(admin, queues_of(gone.id))

        await eventually(is_retired, timeout=90)
        assert await existing_queues(admin, queues_of(silent.id)) == {*queues_of(silent.id)}
        [retired] = sidecar.events("orphan.retired")
        assert retired["worker_id"] == gone.id
        assert retired["explanation"] == "the worker has no row"

        # None of its messages is lost: each is on record, and the backstop ends the executions.
        await world.until_outcomes(stale_attempt=3)
        [row] = await world.sql(
            "SELECT count(*) AS open FROM execution WHERE id = ANY ($1) AND status = 'scheduled'",
            [one.execution_id for one in dispatched],
        )
        assert row["open"] == 3
        assert await sidecar.terminate() == 0
