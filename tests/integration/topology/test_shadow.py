"""The shadow queue: beside everything that exists, and without an effect on it."""

from collections.abc import Sequence

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.topology.apply import apply
from dlq_handler.topology.blueprint import Blueprint, ShadowLimits
from dlq_handler.topology.check import Conclusion
from dlq_handler.topology.checker import TopologyReport, check_topology
from dlq_handler.topology.drift import Expectation, Severity
from sandbox.attune.topology import ready_count, verify_redeclare
from tests.integration.topology.broker_side import keys_bound, queue_names
from tests.support.topologies import without_default_type

QUEUE = "attune.dlx.shadow.queue"
SHADOW = Blueprint(intake_queue=QUEUE, shadow=ShadowLimits(max_letters=3, ttl_ms=60_000))


async def check(link: AdminConnection, api: ManagementApi) -> TopologyReport:
    expected = Expectation(blueprint=SHADOW, worker_ids=frozenset({1}), ttl_ms=300_000)
    return await check_topology(link, api, expected)


def about_us(report: TopologyReport) -> Sequence[Severity]:
    return [finding.severity for finding in report.topology.findings if "shadow" in finding.subject]


async def test_beside_stock_attune_only_the_queue_of_copies_is_added(
    vhost: str, stock: None, link: AdminConnection, api: ManagementApi
) -> None:
    await apply(link, Blueprint(), {1})
    before = await api.snapshot()
    report = await apply(link, SHADOW, {1, 2})
    after = await api.snapshot()
    assert report.made == (QUEUE,)
    assert set(after.queues) - set(before.queues) == {QUEUE}
    assert without_default_type(after.queues[QUEUE].arguments) == {
        "x-max-length": 3,
        "x-message-ttl": 60_000,
        "x-overflow": "drop-head",
    }
    assert await keys_bound(api, QUEUE) == {"execution.dispatch.worker.1", "execution.dispatch.worker.2"}
    assert await keys_bound(api, STOCK_QUEUE) == {"#", "execution.dispatch.worker.1"}, "as it was"
    await verify_redeclare(vhost, {1: 300_000})


async def test_on_an_empty_broker_the_stock_queue_is_left_to_attune(
    vhost: str, link: AdminConnection, api: ManagementApi
) -> None:
    await apply(link, SHADOW, {1})
    assert await queue_names(api) == {QUEUE}
    await verify_redeclare(vhost, {1: 300_000})


async def test_letter_reaches_both_queues_and_copies_beyond_the_limit_are_dropped(
    vhost: str, stock: None, link: AdminConnection
) -> None:
    await apply(link, Blueprint(), {1})
    await apply(link, SHADOW, {1})
    async with link.channel("publish") as channel:
        for _ in range(5):
            await channel.basic_publish(
                b"{}", exchange="attune.dlx", routing_key="execution.dispatch.worker.1"
            )
        # The broker works in order: its answer says that it has routed them.
        await channel.queue_declare(QUEUE, passive=True)
    assert await ready_count(vhost, STOCK_QUEUE) == 5
    assert await ready_count(vhost, QUEUE) == 3


async def test_check_finds_no_broken_route_and_says_what_shadow_does(
    stock: None, link: AdminConnection, api: ManagementApi
) -> None:
    await apply(link, SHADOW, {1})
    report = await check(link, api)
    assert report.topology.conclusion is Conclusion.FINE
    assert about_us(report) == [Severity.NOTE]


async def test_an_alternate_exchange_that_no_longer_gets_the_copied_letters_is_drift(
    link: AdminConnection, api: ManagementApi
) -> None:
    alternate = "attune.lost"
    async with link.channel("declare") as channel:
        await channel.exchange_declare(
            "attune.dlx", exchange_type="direct", durable=True, arguments={"alternate-exchange": alternate}
        )
    await apply(link, SHADOW, {1})
    findings = (await check(link, api)).topology.findings
    assert [one.severity for one in findings if alternate in one.is_now] == [Severity.DRIFT]
