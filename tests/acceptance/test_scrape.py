"""Every metric that an alert or a panel names is in a scrape of the real process: ours, or the broker's."""

from functools import partial

import aio_pika
import httpx

from sandbox.servers import PrivateRabbitMQ
from tests.support.eventually import eventually
from tests.support.journey import World
from tests.support.ops_files import alerts, metrics_in, panel_queries
from tests.support.sidecar import SidecarProcess, sidecar_process

USED = metrics_in(*(alert.expr for alert in alerts()), *panel_queries())


def of_broker(name: str) -> bool:
    return name.startswith("rabbitmq_")


async def test_every_metric_of_ours_that_rules_and_dashboard_name_is_in_the_first_scrape(
    world: World,
) -> None:
    async with sidecar_process(world.folder, world.amqp_url, world.database_url) as sidecar:
        scraped = {sample.partition("{")[0] for sample in await sidecar.metrics()}
    # `up` is what Prometheus itself says of a scrape.
    wanted = {name for name in USED if not of_broker(name)} - {"up"}
    assert len(wanted) > 25
    assert wanted <= scraped


async def test_no_series_is_born_between_the_first_scrape_and_the_end_of_a_rescue(world: World) -> None:
    """One that is born at 7 is invisible to `increase()`: the alert that it is for does not fire."""
    worker = await world.vanished_worker()
    async with sidecar_process(world.folder, world.amqp_url, world.database_url) as sidecar:
        first = await sidecar.metrics()
        await world.all_ended(await world.executor.schedule_many(3, worker.id))
        for fact, counted in (
            ('dead_letters_total{outcome="failed",reason="expired"}', 3),
            ("decision_latency_seconds_count", 3),
            ('notices_total{outcome="confirmed"}', 3),
            ("announce_latency_seconds_count", 3),
        ):
            await eventually(partial(shows, sidecar, f"dlq_handler_{fact}", counted))
        assert (await sidecar.metrics()).keys() == first.keys()


async def shows(sidecar: SidecarProcess, sample: str, value: float) -> bool:
    return (await sidecar.metrics())[sample] == value


async def test_every_metric_of_the_broker_that_rules_name_is_in_its_scrape() -> None:
    wanted = {name for name in USED if of_broker(name)}
    assert wanted
    async with await PrivateRabbitMQ.launch() as rabbitmq:
        async with await aio_pika.connect(rabbitmq.amqp_url) as connection:
            await (await connection.channel()).declare_queue("attune.dlx.queue", durable=True)

        async def is_there() -> bool:
            async with httpx.AsyncClient(verify=False, trust_env=False) as client:
                text = (await client.get(f"http://{rabbitmq.metrics_address}/metrics/per-object")).text
            samples = [line.partition("{") for line in text.splitlines()]
            assert wanted <= {name for name, _, _ in samples}
            of_queues = {name for name, _, labels in samples if 'queue="attune.dlx.queue"' in labels}
            return {name for name in wanted if name.startswith("rabbitmq_queue_")} <= of_queues

        await eventually(is_there, timeout=60, every=0.5)
