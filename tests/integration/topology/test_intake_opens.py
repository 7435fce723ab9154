"""Bindings when the intake opens after a pause, on a real broker."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.dead_letters.intake import DeadLetterIntake
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.options import PauseOptions
from dlq_handler.errors import Braked, GateClosed, Unavailable
from dlq_handler.health import Readiness
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.rooms import new_metrics
from dlq_handler.topology.blueprint import Blueprint
from dlq_handler.topology.keeper import TopologyKeeper
from dlq_handler.topology.options import TopologyOptions
from tests.integration.topology.broker_side import declare_queue, delete_queue, keys_bound
from tests.support.builders import read

WORKER_KEY = "execution.dispatch.worker.1"


class Decider:
    """Brake and safety gate: `paused_by` is raised while it is set."""

    def __init__(self) -> None:
        self.paused_by: Exception | None = None

    async def check(self) -> None:
        if self.paused_by is not None:
            raise self.paused_by


@pytest.fixture
async def source(vhost: str, link: AdminConnection) -> AsyncIterator[QueueConsumer[DeadLetter]]:
    one = QueueConsumer(
        BrokerAddress(urls=[vhost]),
        link,
        queue=STOCK_QUEUE,
        prefetch=10,
        batch_size=5,
        batch_wait_seconds=0.01,
        max_bytes=2**20,
        max_body_bytes=2**20,
        read=read,
    )
    yield one
    await one.close()


class Registered:
    async def worker_ids(self) -> frozenset[int]:
        return frozenset({1})


@pytest.mark.parametrize("paused_by", [Braked("too many"), GateClosed("a standby")], ids=["brake", "gate"])
async def test_a_queue_that_was_created_again_during_a_pause_gets_its_bindings_when_the_intake_opens(
    stock: None,
    link: AdminConnection,
    api: ManagementApi,
    source: QueueConsumer[DeadLetter],
    paused_by: Unavailable,
) -> None:
    keeper = TopologyKeeper(
        link, Blueprint(), cast("Any", Registered()), TopologyOptions(), interval_seconds=2
    )
    decide = Decider()
    intake = DeadLetterIntake(
        source,
        cast("Any", decide),
        keeper,
        cast("Any", None),
        PauseOptions(),
        readiness=Readiness(),
        metrics=new_metrics(),
    )
    await intake.tick(asyncio.Event())
    await keeper.tick()
    assert WORKER_KEY in await keys_bound(api, STOCK_QUEUE)

    decide.paused_by = paused_by
    await intake._close("paused")
    await keeper.tick()
    with pytest.raises(type(paused_by)):
        await intake.tick(asyncio.Event())
    await delete_queue(link, STOCK_QUEUE)
    await declare_queue(link, STOCK_QUEUE)
    await keeper.tick()
    assert await keys_bound(api, STOCK_QUEUE) == set(), "created again by others, without any binding"

    decide.paused_by = None
    await intake.tick(asyncio.Event())
    assert source.is_open
    await keeper.tick()

    assert await keys_bound(api, STOCK_QUEUE) == {WORKER_KEY}
