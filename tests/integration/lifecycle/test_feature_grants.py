"""`grants --feature`: the printed rights suffice to retire a queue, and the plain ones do not."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.rabbitmq_backend import RabbitMQBackend
from dlq_handler.database import migrate
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.drain import RetiredQueueDrainer
from dlq_handler.dead_letters.intake import DeadLetterConsumers
from dlq_handler.dead_letters.options import BatchOptions, IntakeOptions
from dlq_handler.dead_letters.queue_emptier import Drained
from dlq_handler.dead_letters.retired import declare_retired_queue
from dlq_handler.errors import BrokerRightsMissing, GrantsMissing
from dlq_handler.host.grants_sql import missing_grants, read_database
from dlq_handler.host.owners import queues_of_worker
from dlq_handler.host.rights import Feature, host_grants, own_grants
from dlq_handler.host.worker import AvailabilityPolicy
from dlq_handler.host.worker_lifecycle_sql import cordon, lock_worker, uncordon
from dlq_handler.lifecycle.broker_rights import queues_of_features
from dlq_handler.settings import Settings
from dlq_handler.topology.blueprint import RETIRED_QUEUE, broker_permissions
from sandbox.attune.database import bare_connection
from sandbox.attune.executor import StockExecutor
from sandbox.attune.worker import StockWorker
from sandbox.servers import PostgreSQL, RabbitMQ
from tests.support.deciding import letter_ender, letter_recorder
from tests.support.fail_safe import a_gate
from tests.support.host_tables import Host

SETTINGS = Settings()
FEATURES = [Feature.LIFECYCLE, Feature.ORPHANS]


@dataclass(frozen=True)
class User:
    """One of both servers, without any right yet."""

    name: str
    store: Database
    address: BrokerAddress
    database_url: str
    rabbitmq: RabbitMQ
    vhost_name: str

    async def grant(self, *features: Feature) -> None:
        found = await read_database(self.store, self.name, features)
        async with bare_connection(self.database_url) as connection:
            for statement in [*host_grants(self.name, found.rights), *own_grants(self.name, "dlq_handler")]:
                await connection.execute(statement)
        patterns = broker_permissions(
            SETTINGS.blueprint, lifecycle=queues_of_features(SETTINGS.flow_blueprints, features)
        )
        await self.rabbitmq.ask(
            "PUT",
            f"permissions/{self.vhost_name}/{self.name}",
            {"configure": patterns.configure, "write": patterns.write, "read": patterns.read},
        )


def as_user(url: str, name: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{name}:secret@{parts.netloc.rpartition('@')[2]}"))


@pytest.fixture
async def user(
    postgres: PostgreSQL, rabbitmq: RabbitMQ, database: str, vhost: str, vhost_name: str
) -> AsyncIterator[User]:
    name = f"least_{uuid.uuid4().hex[:12]}"
    await postgres.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    await rabbitmq.ask("PUT", f"users/{name}", {"password": "secret", "tags": ""})
    store = Database(as_user(database, name))
    address = BrokerAddress(urls=[as_user(vhost, name)])
    yield User(name, store, address, database, rabbitmq, vhost_name)
    await store.dispose()
    async with bare_connection(database) as connection:
        await connection.execute(f"DROP OWNED BY {name} CASCADE")
    await postgres.execute(f"DROP ROLE {name}")
    await rabbitmq.ask("DELETE", f"users/{name}")


class Leading:
    is_leader = True


@pytest.mark.parametrize("feature", FEATURES)
async def test_user_with_the_printed_rights_retires_the_queues_of_a_worker(
    user: User, host: Host, database: str, vhost: str, feature: Feature
) -> None:
    await user.grant(feature)
    await migrate.upgrade(user.store)
    assert await missing_grants(user.store, features=[feature]) == []
    async with (
        StockExecutor(vhost, database) as executor,
        StockWorker(vhost, database, name="gone") as worker,
    ):
        worker_id = worker.id
        [dispatch] = await executor.schedule_many(1, worker_id)
    await host.session.execute("UPDATE worker SET status = 'inactive'")
    admin, backend = AdminConnection(user.address), RabbitMQBackend(user.address)
    gate = a_gate(user.store)
    drainer = RetiredQueueDrainer(
        user.store,
        Leading(),  # type: ignore[arg-type]  # one replica
        gate,
        letter_ender(user.store, gate=gate, recorder=letter_recorder(gate)),
        consumers=DeadLetterConsumers(
            user.address, admin, IntakeOptions(), BatchOptions(), prefetch=1000, tag="dlq-handler.least"
        ),
        availability=AvailabilityPolicy(unavailable_after_seconds=90),
    )
    try:
        await declare_retired_queue(admin)
        async with user.store.transaction() as tx:
            assert await cordon(tx, worker_id)
        executions, *others = queues_of_worker(worker_id)
        for queue in (executions, *others):
            for topic in queue.topics:
                await backend.bind(topic, RETIRED_QUEUE)
                await backend.unbind(topic, queue.name)
        drained = await drainer.drain(executions.name, asyncio.Event(), worker_id=worker_id)
        async with user.store.transaction() as tx:
            assert await lock_worker(tx, worker_id) is not None
            for queue in (executions, *others):
                assert await backend.delete_queue(queue.topics[0], queue.name)
        # A worker that returns: its queue as stock declares it, bound again, uncordoned.
        assert await backend.create_queue(executions.topics[0], executions.name, **executions.properties)
        await backend.unbind(executions.topics[0], RETIRED_QUEUE)
        async with user.store.transaction() as tx:
            assert await uncordon(tx, worker_id)
    finally:
        await backend.close()
        await admin.close()

    assert drained == Drained(messages=1)
    assert (await host.execution(dispatch.execution_id))["status"] == "failed"


async def test_user_without_the_feature_cannot_touch_workers_or_their_queues(
    user: User, database: str, vhost: str
) -> None:
    await user.grant()
    await migrate.upgrade(user.store)
    async with StockWorker(vhost, database, name="safe") as worker:
        worker_id = worker.id
    missing = await missing_grants(user.store, features=[Feature.LIFECYCLE])
    assert missing == [
        "UPDATE (cordoned) on attune.worker",
        "UPDATE (cordon_reason) on attune.worker",
        "UPDATE (cordoned_at) on attune.worker",
        "INSERT on attune.worker_history",
    ]
    for change in (lock_worker, cordon):
        with pytest.raises(GrantsMissing):
            async with user.store.transaction() as tx:
                await change(tx, worker_id)
    admin = AdminConnection(user.address)
    try:
        with pytest.raises(BrokerRightsMissing):
            await declare_retired_queue(admin)
    finally:
        await admin.close()


async def test_feature_gives_no_right_on_status_heartbeat_or_other_queues(
    user: User, database: str, vhost: str
) -> None:
    async with StockExecutor(vhost, database):
        """It has declared its queues."""
    await user.grant(*FEATURES)
    for statement in (
        "UPDATE worker SET status = 'inactive'",
        "UPDATE worker SET last_heartbeat = now()",
        "DELETE FROM worker",
        "UPDATE execution SET worker = NULL",
    ):
        with pytest.raises(GrantsMissing):
            async with user.store.transaction() as tx:
                await tx.run(statement)
    backend = RabbitMQBackend(user.address)
    try:
        with pytest.raises(BrokerRightsMissing):
            await backend.delete_queue(
                "attune.executions:execution.completed", "attune.execution.completed.queue"
            )
    finally:
        await backend.close()
