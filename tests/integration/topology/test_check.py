"""Checking a live broker: by the management API, and by AMQP where there is none."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.topology.apply import apply
from dlq_handler.topology.blueprint import Blueprint
from dlq_handler.topology.check import Conclusion
from dlq_handler.topology.checker import TopologyReport, check_topology
from dlq_handler.topology.drift import Expectation
from sandbox.attune.topology import verify_redeclare
from sandbox.servers import RabbitMQ
from sandbox.servers.ports import free_port
from tests.integration.topology.broker_side import declare_queue, delete_exchange, queue_names
from tests.support.eventually import eventually


def expected(**changes: Any) -> Expectation:
    fields: dict[str, Any] = {
        "blueprint": Blueprint(),
        "worker_ids": frozenset({1}),
        "ttl_ms": 300_000,
    }
    return Expectation(**(fields | changes))


@pytest.fixture
def no_api() -> ManagementApi:
    return ManagementApi(f"http://user:secret@127.0.0.1:{free_port()}", vhost="/")


def arrives(report: TopologyReport) -> dict[str, str]:
    return {queue.queue: queue.arrives for queue in report.topology.queues}


async def test_stock_attune_is_a_broken_route_until_the_blueprint_is_applied(
    vhost: str, stock: None, link: AdminConnection, api: ManagementApi
) -> None:
    before = await check_topology(link, api, expected())
    await apply(link, Blueprint(), {1})
    after = await check_topology(link, api, expected())

    assert before.topology.conclusion is Conclusion.BROKEN_ROUTE
    assert after.topology.conclusion is Conclusion.FINE
    assert arrives(after)["worker.1.executions"] == "yes"
    assert arrives(after)["attune.events.queue"] == "no"
    assert after.limits == ()
    await verify_redeclare(vhost, {1: 300_000})


async def test_an_intake_queue_of_our_own_takes_every_key_that_can_be_listed(
    stock: None, link: AdminConnection, api: ManagementApi
) -> None:
    own = Blueprint(intake_queue="attune.dlx.sidecar.queue")
    await apply(link, own, {1})

    answers = arrives(await check_topology(link, api, expected(blueprint=own)))

    assert {queue for queue, answer in answers.items() if answer == "no"} == {
        "attune.events.queue",
        "attune.executor.events.queue",
        "worker.1.packs",
    }


async def test_another_consumer_is_named(stock: None, link: AdminConnection, api: ManagementApi) -> None:
    await apply(link, Blueprint(), {1})

    async def takes(_: object) -> None:
        """Never called: the queue is empty."""

    async with link.channel("consume") as channel:
        await channel.basic_consume(STOCK_QUEUE, takes, consumer_tag="dlq-handler.replica")
        await channel.basic_consume(STOCK_QUEUE, takes, consumer_tag="executor.dlq")

        async def is_seen() -> bool:
            report = await check_topology(link, api, expected())
            now = [finding.is_now for finding in report.topology.findings]
            return "1 other consumer(s): 'executor.dlq'" in now

        assert await eventually(is_seen)


async def test_operator_policies_count(
    rabbitmq: RabbitMQ, vhost_name: str, stock: None, link: AdminConnection, api: ManagementApi
) -> None:
    await apply(link, Blueprint(), {1})
    await rabbitmq.ask(
        "PUT",
        f"operator-policies/{vhost_name}/limit",
        {"pattern": "^attune.dlx.queue$", "definition": {"max-length": 9}, "apply-to": "queues"},
    )

    async def is_seen() -> bool:
        report = await check_topology(link, api, expected())
        return any(finding.is_now == "max-length 9" for finding in report.topology.findings)

    assert await eventually(is_seen)


async def test_without_the_management_api_it_names_what_is_unknown(
    vhost: str, stock: None, link: AdminConnection, no_api: ManagementApi, api: ManagementApi
) -> None:
    await apply(link, Blueprint(), {1, 2})
    before = await queue_names(api)

    report = await check_topology(link, no_api, expected(worker_ids=frozenset({1, 2}), ttl_ms=60_000))

    assert report.topology.conclusion is Conclusion.UNKNOWN
    assert arrives(report)["worker.1.executions"] == "unknown"
    assert arrives(report)["worker.2.executions"] == "no queue"
    assert any("x-message-ttl=300000" in finding.is_now for finding in report.topology.findings)
    assert "neither bindings nor policies" in report.limits[0]
    assert "secret" not in report.limits[0]
    assert await queue_names(api) == before
    await verify_redeclare(vhost, {1: 300_000})


async def test_a_broken_route_that_amqp_shows_is_one_without_the_management_api_too(
    stock: None, link: AdminConnection, no_api: ManagementApi
) -> None:
    await delete_exchange(link, "attune.dlx")

    report = await check_topology(link, no_api, expected())

    assert report.topology.conclusion is Conclusion.BROKEN_ROUTE
    assert "does not exist" in report.topology.queues[0].sentence


@asynccontextmanager
async def a_user(rabbitmq: RabbitMQ, vhost_name: str, tags: str) -> AsyncIterator[ManagementApi]:
    """The API for a user without rights in the vhost."""
    name = f"reader-{vhost_name}"
    await rabbitmq.ask("PUT", f"users/{name}", {"password": "p w", "tags": tags})
    try:
        nothing = {"configure": "", "write": "", "read": ""}
        await rabbitmq.ask("PUT", f"permissions/{vhost_name}/{name}", nothing)
        host = rabbitmq.management_url.partition("://")[2]
        yield ManagementApi(f"http://{name}:p%20w@{host}", vhost=vhost_name)
    finally:
        await rabbitmq.ask("DELETE", f"users/{name}")


async def test_a_plain_user_of_the_api_learns_that_there_are_consumers_it_cannot_see(
    rabbitmq: RabbitMQ, vhost_name: str, stock: None, link: AdminConnection
) -> None:
    await apply(link, Blueprint(), {1})

    async def takes(_: object) -> None:
        """Never called: the queue is empty."""

    async with a_user(rabbitmq, vhost_name, "management") as api, link.channel("consume") as channel:
        await channel.basic_consume(STOCK_QUEUE, takes, consumer_tag="executor.dlq")
        report = await check_topology(link, api, expected())

    assert report.topology.conclusion is Conclusion.FINE
    assert "1 unidentified consumer(s)" in {finding.is_now for finding in report.topology.findings}


async def test_a_user_whom_the_api_refuses_falls_back_to_amqp(
    rabbitmq: RabbitMQ, vhost_name: str, stock: None, link: AdminConnection
) -> None:
    async with a_user(rabbitmq, vhost_name, "") as api:
        report = await check_topology(link, api, expected())

    assert report.topology.conclusion is Conclusion.UNKNOWN
    assert "it refuses this user" in report.limits[0]


async def test_a_background_check_without_the_api_probes_nothing_and_says_unknown(
    link: AdminConnection, no_api: ManagementApi
) -> None:
    await declare_queue(link, "worker.1.executions")
    report = await check_topology(link, no_api, expected(worker_ids=frozenset({1})), may_probe=False)
    assert report.topology.conclusion is Conclusion.UNKNOWN
    assert (report.topology.queues, report.topology.findings) == ((), ())
    assert report.limits[0].startswith("management API at ")
