"""RabbitMQ's own metrics that the alert rules and panels use are in a scrape of a real RabbitMQ."""

import aio_pika
import httpx

from sandbox.servers import PrivateRabbitMQ
from tests.support.eventually import eventually
from tests.support.ops_files import alerts, metrics_in, panel_queries


async def test_every_metric_of_the_broker_that_rules_name_is_in_its_scrape() -> None:
    used = metrics_in(*(alert.expr for alert in alerts()), *panel_queries())
    wanted = {name for name in used if name.startswith("rabbitmq_")}
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
