"""The intake when the network or the broker goes away under it."""

import asyncio

import pytest

from dlq_handler.errors import Unavailable
from tests.integration.broker.conftest import SourceFactory
from tests.integration.broker.letterbox import Letterbox, execution_ids
from tests.support.tcp_proxy import TcpProxy

# aiormq gives a silent connection up after three of these and three seconds.
HEARTBEAT_SECONDS = 1


async def test_a_cut_connection_is_noticed_and_the_next_one_works(
    letterbox: Letterbox, proxy: TcpProxy, a_source: SourceFactory
) -> None:
    await letterbox.put(1)
    source = a_source(url=proxy.url)
    await source.open()
    (held,) = await source.next_batch(timeout_seconds=20)
    proxy.cut()

    with pytest.raises(Unavailable):
        await source.next_batch(timeout_seconds=20)
    assert not source.is_consuming
    assert await source.acknowledge([held]) == 0

    await source.open()
    assert execution_ids(await source.next_batch(timeout_seconds=20)) == [1]


async def test_a_half_open_connection_is_noticed_by_its_silence(
    letterbox: Letterbox, proxy: TcpProxy, a_source: SourceFactory
) -> None:
    source = a_source(url=proxy.url, heartbeat_seconds=HEARTBEAT_SECONDS)
    await source.open()
    proxy.freeze()

    with pytest.raises(Unavailable, match="lost"):
        await source.next_batch(timeout_seconds=60)

    async with asyncio.timeout(20):
        await source.close()


async def test_opening_fails_in_time_while_the_broker_is_down_or_mute(
    letterbox: Letterbox, proxy: TcpProxy, a_source: SourceFactory
) -> None:
    source = a_source(url=proxy.url)
    await proxy.refuse()
    with pytest.raises(Unavailable, match="connect to"):
        await source.open()

    await proxy.heal()
    proxy.freeze()
    async with asyncio.timeout(20):
        with pytest.raises(Unavailable, match="no answer in time"):
            await source.open()

    await proxy.heal()
    await source.open()
    assert source.is_consuming


async def test_not_reading_for_too_long_gives_the_letters_back(
    letterbox: Letterbox, a_source: SourceFactory
) -> None:
    await letterbox.put(*range(20), body=b'{"pad": "' + b"x" * 1_000_000 + b'"}')
    source = a_source(heartbeat_seconds=HEARTBEAT_SECONDS, max_bytes=100_000, prefetch=20)
    await source.open()
    await source.next_batch(timeout_seconds=20)

    async def read_on() -> None:
        while await source.next_batch(timeout_seconds=60):
            pass  # a slow broker hands the first letters over one by one

    with pytest.raises(Unavailable):
        await read_on()
