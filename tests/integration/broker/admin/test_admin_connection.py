"""The connection for questions and declarations, and the stop of a task that uses it."""

import asyncio
import gc

import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.client.connection import BrokerAddress


@pytest.mark.parametrize("turns", range(9))
async def test_a_stop_while_a_channel_is_closed_is_not_swallowed(vhost: str, turns: int) -> None:
    """`turns`: how many turns of the event loop after the block the stop is requested; closing takes more."""
    async with AdminConnection(BrokerAddress(urls=[vhost])) as connection:

        async def use() -> None:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert task is not None

            def stop_after(left: int) -> None:
                if left:
                    loop.call_soon(stop_after, left - 1)
                else:
                    task.cancel()

            async with connection.channel("ask nothing"):
                stop_after(turns)

        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(10):
                await asyncio.create_task(use())


async def test_a_closed_channel_leaves_nothing_behind(vhost: str) -> None:
    """A replica opens some every minute for as long as it runs, and thousands beside a large fleet."""
    async with AdminConnection(BrokerAddress(urls=[vhost])) as connection:

        async def count_objects_after(channels: int) -> int:
            for _ in range(channels):
                async with connection.channel("ask nothing"):
                    pass
            gc.collect()
            return len(gc.get_objects())

        before = await count_objects_after(10)
        assert await count_objects_after(50) - before < 100
