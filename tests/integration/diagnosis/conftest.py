"""A world in which nothing is wrong, for a test to break one thing of."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.cli.open import open_doctor
from dlq_handler.database.engine import Database
from dlq_handler.diagnosis.diagnose import diagnose_for_doctor
from dlq_handler.diagnosis.diagnosis import Diagnosis
from dlq_handler.host.workers_sql import worker_ids
from dlq_handler.settings import Settings, load
from dlq_handler.settings.servers import management_api_of
from dlq_handler.topology.apply import apply
from sandbox.attune.topology import COMPLETED_QUEUE, REQUESTS_QUEUE, verify_redeclare
from sandbox.servers import RabbitMQ
from tests.support.eventually import eventually
from tests.support.host_tables import Host
from tests.support.taker import a_taker


async def ignore(_: AbstractIncomingMessage) -> None:
    """Nothing comes in these tests."""


@dataclass(kw_only=True)
class Patient:
    """What the doctor is asked about; `environment` are its settings."""

    amqp_url: str
    store: Database
    host: Host
    environment: dict[str, str]
    said: list[str] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return load(None, self.environment).settings

    async def examined(self, *, with_canary: bool = False, **environment: str) -> Mapping[str, Diagnosis]:
        """What is required, by check. Keywords are variables."""
        loaded = load(None, self.environment | environment)
        async with open_doctor(
            loaded.settings, warnings=loaded.warnings, with_canary=with_canary, say=self.said.append
        ) as (collector, doctor):
            view = await collector.collect()
            found = diagnose_for_doctor(view, await doctor.examine(view))
        by_check = {one.check.value: one for one in found if one.is_required}
        assert len(by_check) == sum(one.is_required for one in found), "a check was made twice"
        return by_check

    @asynccontextmanager
    async def consumed(self, queue: str, tag: str) -> AsyncIterator[None]:
        connection = await aio_pika.connect(self.amqp_url)
        async with connection:
            channel = await connection.channel()
            await (await channel.get_queue(queue)).consume(ignore, consumer_tag=tag)
            yield

    async def tags_are_listed(self, queue: str, count: int) -> None:
        """The management API hears of consumers a little later than they are there."""
        api = management_api_of(self.settings)

        async def are_listed() -> bool:
            return len(await api.consumer_tags(queue)) == count

        await eventually(are_listed)


@pytest.fixture
async def patient(
    rabbitmq: RabbitMQ, vhost: str, database: str, store: Database, host: Host
) -> AsyncIterator[Patient]:
    """Stock Attune with two workers and an executor, our topology and tables, and a consumer of ours."""
    workers = [await host.add_worker() for _ in range(2)]
    await verify_redeclare(vhost, dict.fromkeys(workers, 300_000))
    api = urlsplit(rabbitmq.management_url)
    one = Patient(
        amqp_url=vhost,
        store=store,
        host=host,
        environment={
            "ATTUNE__MESSAGE_QUEUE__URL": vhost,
            "ATTUNE__DATABASE__URL": database,
            "ATTUNE__DLQ_HANDLER__INTAKE__QUEUE": "attune.dlx.queue",
            "ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL": (
                f"{api.scheme}://{rabbitmq.user}:{rabbitmq.password}@{api.netloc}"
            ),
            "ATTUNE__DLQ_HANDLER__CANARY__TTL_MS": "100",
            "ATTUNE__DLQ_HANDLER__CANARY__LIMIT_SECONDS": "2",
        },
    )
    async with AdminConnection(BrokerAddress(urls=[vhost])) as link:
        await apply(link, one.settings.blueprint, await worker_ids(store))
    async with AsyncExitStack() as executor:
        for queue in (COMPLETED_QUEUE, REQUESTS_QUEUE):
            await executor.enter_async_context(one.consumed(queue, "executor"))
        yield one


@pytest.fixture
async def sidecar(patient: Patient) -> AsyncIterator[None]:
    async with a_taker(patient.store, patient.amqp_url):
        await patient.tags_are_listed("attune.dlx.queue", 1)
        yield
