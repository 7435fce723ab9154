"""Missing rights are found by calls that the broker refuses, however early its refusal arrives."""

import asyncio
from typing import Any

import aiormq.channel
import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.rights_probe import NeededRights, missing_rights


async def test_a_refusal_that_arrives_before_the_next_call_is_read(
    link: AdminConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = aiormq.channel.Channel.basic_publish

    async def publish_and_wait_for_refusal(self: aiormq.channel.Channel, *args: Any, **options: Any) -> None:
        await publish(self, *args, **options)
        await asyncio.wait([self.closing])

    monkeypatch.setattr(aiormq.channel.Channel, "basic_publish", publish_and_wait_for_refusal)

    assert await missing_rights(link, NeededRights(written_exchanges=("amq.topic",))) == []
