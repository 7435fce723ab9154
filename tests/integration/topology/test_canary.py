"""Canaries on real servers: sent by one, taken by any, through the real binding of each worker."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from math import isnan
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import uuid4

import aio_pika
import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.publisher import Publisher
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.errors import Unavailable
from dlq_handler.metrics import Metrics
from dlq_handler.rooms import new_metrics
from dlq_handler.topology.apply import apply
from dlq_handler.topology.blueprint import Blueprint, ShadowLimits
from dlq_handler.topology.canary import CANARY_EXCHANGE, CANARY_QUEUE, CanaryPlan, CanaryState, IntakeView
from dlq_handler.topology.canary_sender import CanaryRefused, CanarySender, declare_canary
from dlq_handler.topology.canary_sql import delete_old
from dlq_handler.topology.canary_watch import CanaryRecorder, CanaryWatch
from dlq_handler.topology.options import CanaryOptions
from sandbox.attune import topology
from sandbox.servers import RabbitMQ
from tests.support.eventually import eventually
from tests.support.host_tables import Host
from tests.support.taker import a_taker

PLAN = CanaryPlan(dead_letter_exchange=topology.DLX, ttl_ms=50)
CONSUMING = IntakeView(consuming_seconds=3600.0, waiting=0)


class RareRounds(CanaryOptions):
    @property
    def round_seconds(self) -> float:
        return 60.0


@dataclass
class Replica:
    """One sidecar, as far as canaries go, ticked by hand."""

    store: Database
    amqp_url: str
    workers: list[int]
    queue: str = topology.DLX_QUEUE
    name: str = "one"
    lease: str = "leader"
    interval_seconds: float = 0.0
    limit_seconds: float = 1.0
    view: IntakeView = CONSUMING
    reapplied: int = 0
    metrics: Metrics = field(default_factory=new_metrics)

    def __post_init__(self) -> None:
        address = BrokerAddress(urls=[self.amqp_url])
        self.link = AdminConnection(address)
        self.leadership = Leadership(
            self.store,
            self.lease,
            lease_seconds=60,
            renew_seconds=10,
            holder=self.name,
            metrics=self.metrics,
        )
        self.publisher = Publisher(address, publish_timeout_seconds=5)
        self.sender = CanarySender(
            self.store,
            self.link,
            self.publisher,
            Blueprint(intake_queue=self.queue),
            ttl_ms=50,
            replica=self.name,
        )
        self.watch = CanaryWatch(
            self.store,
            self.sender,
            # No validation: the tests do not wait for an interval.
            RareRounds.model_construct(
                interval_seconds=self.interval_seconds, limit_seconds=self.limit_seconds
            ),
            leadership=self.leadership,
            intake=cast("Any", self),
            keeper=cast("Any", self),
            metrics=self.metrics,
        )

    @property
    def bound_workers(self) -> list[int]:
        return self.workers

    def reapply_now(self) -> None:
        self.reapplied += 1

    async def lead(self) -> None:
        await self.leadership.tick()

    @property
    def counts(self) -> dict[str, float]:
        """Workers by the state of their canary, as the metrics show them."""
        [family] = [
            one for one in self.metrics.registry.collect() if one.name == "dlq_handler_canary_workers"
        ]
        return {sample.labels["state"]: sample.value for sample in family.samples if sample.value}

    async def shows(self, **counts: int) -> None:
        """Tick until the metrics show this many workers in each state."""

        async def is_so() -> bool:
            await self.watch.tick()
            assert self.counts == counts
            return True

        await eventually(is_so, timeout=20)

    async def close(self) -> None:
        await self.publisher.close()
        await self.link.close()


@pytest.fixture
async def workers(host: Host, vhost: str) -> list[int]:
    """Two of them, numbers 1 and 2, whose keys are bound to the stock queue."""
    ids = [await host.add_worker() for _ in range(2)]
    assert ids == [1, 2]
    await topology.verify_redeclare(vhost, dict.fromkeys(ids, 300_000))
    async with AdminConnection(BrokerAddress(urls=[vhost])) as link:
        await apply(link, Blueprint(), ids)
    return ids


@pytest.fixture
async def replica(store: Database, vhost: str, workers: list[int]) -> AsyncIterator[Replica]:
    one = Replica(store, vhost, workers)
    await one.lead()
    yield one
    await one.close()


async def test_canaries_arrive_with_each_workers_key_and_never_in_a_workers_queue(
    replica: Replica, store: Database, vhost: str
) -> None:
    async with a_taker(store, vhost):
        await replica.shows(ok=2)

    for name in ("canary_age_seconds", "canary_seconds"):
        assert (replica.metrics.registry.get_sample_value(f"dlq_handler_{name}") or 0) > 0, name
    for worker in replica.workers:
        assert await topology.ready_count(vhost, topology.worker_queue(worker)) == 0


async def test_a_missing_binding_loses_the_canary_of_that_worker_and_is_reported_once(
    replica: Replica, store: Database, vhost: str
) -> None:
    async with a_taker(store, vhost):
        await replica.shows(ok=2)
        await bind(vhost, 2, undo=True)
        await replica.shows(ok=1, lost=1)
        await replica.watch.tick()
        assert replica.reapplied == 1
        await bind(vhost, 2)
        await replica.shows(ok=2)


async def test_a_canary_is_sent_only_by_the_leader_only_while_we_consume_and_only_when_it_is_due(
    replica: Replica, store: Database, vhost: str, workers: list[int]
) -> None:
    follower = Replica(store, vhost, workers, name="two", interval_seconds=3600)
    patient = Replica(store, vhost, workers, interval_seconds=3600)
    await patient.lead()
    sent = []
    for one, view in (
        (follower, CONSUMING),
        (patient, IntakeView(consuming_seconds=0.0, waiting=0)),
        (patient, CONSUMING),
        (patient, CONSUMING),
    ):
        one.view = view
        await one.watch.tick()
        async with store.transaction() as tx:
            sent.append(len(await tx.rows("SELECT * FROM own.canary")))
    await follower.close()
    await patient.close()

    assert sent == [0, 0, 2, 2]


async def test_a_copy_in_a_shadows_queue_says_nothing_of_the_real_one_and_the_other_way_round(
    replica: Replica, store: Database, vhost: str, workers: list[int]
) -> None:
    shadow_queue = "attune.dlx.shadow.queue"
    blueprint = Blueprint(intake_queue=shadow_queue, shadow=ShadowLimits(max_letters=100, ttl_ms=60_000))
    async with AdminConnection(BrokerAddress(urls=[vhost])) as link:
        await apply(link, blueprint, workers)
    shadow = Replica(store, vhost, workers, queue=shadow_queue, name="shadow", lease="shadow leader")
    await shadow.leadership.tick()
    async with a_taker(store, vhost, queue=shadow_queue, name="dlq-handler.shadow"):
        # Both canaries come to both queues; only the shadow's taker is there.
        await shadow.sender.send(workers)
        await shadow.shows(ok=2)
        await replica.shows(lost=2)
    await shadow.close()


async def test_where_the_broker_refuses_there_is_no_canary_and_one_warning(
    store: Database, vhost: str, workers: list[int], rabbitmq: RabbitMQ, capsys: pytest.CaptureFixture[str]
) -> None:
    name = urlsplit(vhost).path.removeprefix("/")
    user = f"poor-{name}"
    await rabbitmq.ask("PUT", f"users/{user}", {"password": "x", "tags": ""})
    await rabbitmq.ask("PUT", f"permissions/{name}/{user}", {"configure": "", "write": ".*", "read": ".*"})
    url = vhost.replace(f"{rabbitmq.user}:{rabbitmq.password}@", f"{user}:x@")
    poor = Replica(store, url, workers)
    await poor.lead()
    try:
        for _ in range(3):
            await poor.watch.tick()
            poor.watch._refused_until = 0.0
        assert poor.counts == {"unknown": 2}
        [refused] = [line for line in capsys.readouterr().out.splitlines() if "canary.refused" in line]
        assert "`dlq-handler grants`" in refused
        await rabbitmq.ask(
            "PUT", f"permissions/{name}/{user}", {"configure": ".*", "write": ".*", "read": ".*"}
        )
        async with a_taker(store, vhost):
            poor.watch._refused_until = 0.0
            await poor.shows(ok=2)
    finally:
        await poor.close()
        await rabbitmq.ask("DELETE", f"users/{user}")


async def test_a_queue_of_another_ttl_is_used_with_that_and_one_that_leads_elsewhere_is_refused(
    vhost: str, workers: list[int]
) -> None:
    async with AdminConnection(BrokerAddress(urls=[vhost])) as link:
        assert await declare_canary(link, PLAN) == 50
        other = CanaryPlan(dead_letter_exchange=topology.DLX, ttl_ms=9000)
        assert await declare_canary(link, other) == 50
        elsewhere = CanaryPlan(dead_letter_exchange="elsewhere", ttl_ms=50)
        with pytest.raises(CanaryRefused, match=r"x-dead-letter-exchange='attune.dlx'.*delete it"):
            await declare_canary(link, elsewhere)


async def test_an_exchange_of_another_type_is_refused(vhost: str) -> None:
    connection = await aio_pika.connect(vhost)
    async with connection, AdminConnection(BrokerAddress(urls=[vhost])) as link:
        await (await connection.channel()).declare_exchange(CANARY_EXCHANGE, "direct")
        with pytest.raises(CanaryRefused, match="exists with other arguments"):
            await declare_canary(link, PLAN)


async def test_a_deleted_queue_is_declared_again_and_nothing_counts_as_lost(
    replica: Replica, store: Database, vhost: str
) -> None:
    await replica.sender.send(replica.workers)
    connection = await aio_pika.connect(vhost)
    async with connection:
        await (await connection.channel()).queue_delete(CANARY_QUEUE)
    async with store.transaction() as tx:
        await tx.run("DELETE FROM own.canary")

    with pytest.raises(Unavailable, match="2 not sent: NO_ROUTE"):
        await replica.sender.send(replica.workers)
    async with store.transaction() as tx:
        assert [row.sent_at for row in await tx.rows("SELECT sent_at FROM own.canary")] == [None, None]
    async with a_taker(store, vhost):
        await replica.shows(ok=2)


async def test_a_canary_whose_probe_is_deleted_by_now_changes_no_row(store: Database) -> None:
    recorder = CanaryRecorder(store, queue=topology.DLX_QUEUE, replica="one")
    await recorder.record_received([uuid4()])

    async with store.transaction() as tx:
        assert await tx.rows("SELECT * FROM own.canary") == []


async def test_of_each_worker_the_last_received_canary_is_kept_and_old_ones_are_deleted(
    store: Database,
) -> None:
    rows = [
        ("old and seen, but a newer one was too", 7, 500, True),
        ("the last one seen", 7, 400, True),
        ("old and lost", 7, 300, False),
        ("on its way", 7, 10, False),
        ("of a worker long gone", 8, 90_000, True),
    ]
    async with store.transaction() as tx:
        for name, worker, ago, is_seen in rows:
            await tx.run(
                """
                INSERT INTO own.canary (id, worker_id, queue, ttl_seconds, created_at, sent_by, received_at)
                SELECT gen_random_uuid(), :worker, 'q', 5, now() - make_interval(secs => :ago), :name,
                       CASE WHEN :seen THEN now() END
                """,
                name=name,
                worker=worker,
                ago=float(ago),
                seen=is_seen,
            )
    await delete_old(store, "q", fresh_seconds=155)

    async with store.transaction() as tx:
        left = {row.sent_by for row in await tx.rows("SELECT sent_by FROM own.canary")}
    assert left == {"the last one seen", "on its way"}


async def test_where_no_probe_can_ever_be_sent_they_do_not_pile_up(
    replica: Replica, store: Database, vhost: str
) -> None:
    await replica.sender.send(replica.workers)
    connection = await aio_pika.connect(vhost)
    async with connection:
        await (await connection.channel()).queue_delete(CANARY_QUEUE)
    async with store.transaction() as tx:
        await tx.run("UPDATE own.canary SET sent_by = 'old', created_at = now() - interval '1 hour'")

    with pytest.raises(Unavailable, match="2 not sent"):
        await replica.watch.tick()
    async with store.transaction() as tx:
        assert [row.sent_by for row in await tx.rows("SELECT sent_by FROM own.canary")] == ["one", "one"]
    assert replica.counts == {"unknown": 2}, "what was decided stands"


async def test_while_the_database_is_away_nothing_is_said(replica: Replica, host: Host) -> None:
    await host.session.execute("DROP TABLE dlq_handler.canary")
    with pytest.raises(Unavailable):
        await replica.watch.tick()

    assert replica.counts.keys() == set(CanaryState)
    assert all(map(isnan, replica.counts.values()))


async def bind(vhost: str, worker_id: int, *, undo: bool = False) -> None:
    connection = await aio_pika.connect(vhost)
    async with connection:
        queue = await (await connection.channel()).get_queue(topology.DLX_QUEUE)
        change = queue.unbind if undo else queue.bind
        await change(topology.DLX, topology.dispatch_key(worker_id))
