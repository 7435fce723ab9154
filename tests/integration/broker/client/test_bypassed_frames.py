"""A version of aiormq that delivers frames past our channel: the connection ends with an error, nothing is lost."""

import asyncio

import pytest
from aiormq.channel import Channel
from structlog.testing import capture_logs

from dlq_handler.broker.client import direct_channel
from dlq_handler.broker.client.direct_channel import DirectChannel
from dlq_handler.broker.outgoing import Confirmed, OutgoingMessage, Unanswered
from dlq_handler.errors import Unavailable
from tests.integration.broker.conftest import PublisherFactory, SourceFactory
from tests.integration.broker.letterbox import Letterbox, execution_ids
from tests.support.eventually import eventually

A_MESSAGE = OutgoingMessage(
    message_id="m1", correlation_id="c1", exchange="", routing_key=Letterbox.QUEUE, body=b"{}"
)


@pytest.fixture
def other_aiormq(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames go to aiormq's own task, as if its reader no longer called `put` of `frames`."""
    monkeypatch.setattr(direct_channel._FrameQueue, "put", asyncio.Queue.put)
    # A fact of the process; taken back with the test.
    monkeypatch.setattr(direct_channel, "_bypass", None)


@pytest.mark.usefixtures("other_aiormq")
@pytest.mark.parametrize("way", ["aiormq's handler of frames", "the consumer's callback"])
async def test_bypassed_delivery_ends_the_connection_and_stays_in_the_queue(
    way: str, letterbox: Letterbox, a_source: SourceFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "the consumer's callback":
        # A version that also renamed its private handlers: the callback is public.
        monkeypatch.setattr(DirectChannel, "_on_deliver_frame", Channel._on_deliver_frame)
    source = a_source()
    await source.open()
    assert source._session
    connection = source._session._connection

    with capture_logs() as events:
        await letterbox.put(1, 2)
        with pytest.raises(Unavailable, match=r"aiormq [\d.]+ passed a delivery around .* install aiormq"):
            await source.next_batch(timeout_seconds=20)

    (event,) = [event for event in events if event["event"] == "delivery.bypassed"]
    assert (event["log_level"], event["library"], event["frame"]) == ("error", "aiormq", "a delivery")
    await eventually(lambda: connection.is_lost)

    async def are_back() -> bool:
        return await letterbox.ready() == 2

    await eventually(are_back)
    for _ in range(2):
        with pytest.raises(Unavailable, match="around dlq-handler's channel"):
            await source.open()
    assert (await source.count()).consumers == 0, "each new consumer would count as another delivery attempt"


@pytest.mark.usefixtures("other_aiormq")
async def test_bypassed_confirm_ends_the_connection_and_nothing_is_published_again(
    letterbox: Letterbox, a_publisher: PublisherFactory
) -> None:
    publisher = a_publisher(publish_timeout_seconds=60)

    with capture_logs() as events:
        async with asyncio.timeout(20):
            (outcome,) = await publisher.publish([A_MESSAGE])

    assert isinstance(outcome, Unanswered)
    assert "passed a publisher confirm around" in outcome.text
    assert [event["frame"] for event in events if event["event"] == "delivery.bypassed"] == [
        "a publisher confirm"
    ]
    assert not publisher.is_open
    with pytest.raises(Unavailable, match="around dlq-handler's channel"):
        await publisher.publish([A_MESSAGE])
    assert await letterbox.ready() == 1


async def test_supported_version_bypasses_nothing(
    letterbox: Letterbox, a_source: SourceFactory, a_publisher: PublisherFactory
) -> None:
    source = a_source()
    await source.open()
    with capture_logs() as events:
        assert await a_publisher().publish([A_MESSAGE]) == [Confirmed()]
        await letterbox.put(7)
        batch = await source.next_batch(timeout_seconds=20)
        if len(batch) < 2:
            batch += await source.next_batch(timeout_seconds=20)

    assert execution_ids(batch) == [None, 7]
    assert events == []
