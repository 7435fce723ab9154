"""Publishing: what a message looks like, and what the publisher says became of it."""

import asyncio
from collections.abc import Callable

import aio_pika
import pytest

from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.outgoing import Confirmed, OutgoingMessage, PublishRefused, Unanswered, Unroutable
from dlq_handler.broker.publish_connection import PublishBatch
from dlq_handler.broker.publisher import Publisher
from dlq_handler.errors import Unavailable
from sandbox.servers import PrivateRabbitMQ
from tests.integration.broker.conftest import PublisherFactory
from tests.integration.broker.letterbox import Letterbox
from tests.support.eventually import eventually
from tests.support.tcp_proxy import TcpProxy


def a_message(
    message_id: str = "m1", *, exchange: str = "", to: str = Letterbox.QUEUE, body: bytes = b'{"a": 1}'
) -> OutgoingMessage:
    return OutgoingMessage(
        message_id=message_id, correlation_id="c1", exchange=exchange, routing_key=to, body=body
    )


async def test_a_message_is_published_as_attune_publishes(
    letterbox: Letterbox, a_publisher: PublisherFactory
) -> None:
    assert await a_publisher().publish([a_message(body=b'{"b": 2}')]) == [Confirmed()]

    message = await letterbox.take()
    assert message.body == b'{"b": 2}'
    assert (message.message_id, message.correlation_id) == ("m1", "c1")
    assert message.content_type == "application/json"
    assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    assert message.timestamp is not None
    assert (message.type, message.app_id, message.headers) == (None, None, {})


async def test_a_batch_arrives_complete_and_in_order(
    letterbox: Letterbox, a_publisher: PublisherFactory
) -> None:
    messages = [a_message(f"m{number}", body=str(number).encode()) for number in range(300)]
    publisher = a_publisher()

    assert await publisher.publish(messages[:200]) == [Confirmed()] * 200
    assert await publisher.publish(messages[200:]) == [Confirmed()] * 100

    assert [(await letterbox.take()).body for _ in messages] == [message.body for message in messages]


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 1_000_000])
async def test_a_body_of_any_size_arrives_whole(
    size: int, letterbox: Letterbox, a_publisher: PublisherFactory
) -> None:
    body = bytes(number % 251 for number in range(size))

    outcomes = await a_publisher().publish([a_message("m1", body=body), a_message("m2")])

    assert outcomes == [Confirmed(), Confirmed()]
    assert (await letterbox.take()).body == body


async def test_nothing_to_publish_needs_no_broker(a_publisher: PublisherFactory) -> None:
    assert await a_publisher(url="amqp://127.0.0.1:1/").publish([]) == []


async def test_only_the_message_that_no_queue_takes_is_unroutable(
    letterbox: Letterbox, a_publisher: PublisherFactory
) -> None:
    publisher = a_publisher()

    first, second, third = await publisher.publish(
        [a_message("m1"), a_message("m2", to="nowhere"), a_message("m3")]
    )

    assert (first, third) == (Confirmed(), Confirmed())
    assert second == Unroutable("NO_ROUTE: exchange '', routing key 'nowhere'")
    assert await letterbox.ready() == 2


async def test_a_full_queue_refuses(letterbox: Letterbox, a_publisher: PublisherFactory) -> None:
    await letterbox.declare("small", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    publisher = a_publisher()
    assert await publisher.publish([a_message("m1", to="small")]) == [Confirmed()]

    (refused, taken) = await publisher.publish([a_message("m2", to="small"), a_message("m3")])

    assert isinstance(refused, PublishRefused)
    assert taken == Confirmed()


async def test_a_missing_exchange_makes_only_its_own_messages_unroutable(
    letterbox: Letterbox, a_publisher: PublisherFactory
) -> None:
    publisher = a_publisher()
    messages = [a_message("m1", exchange="gone"), a_message("m2"), a_message("m3", exchange="gone")]

    outcomes = await publisher.publish(messages)

    assert outcomes == [Unroutable("no exchange 'gone'"), Confirmed(), Unroutable("no exchange 'gone'")]
    assert await publisher.publish(messages[:1]) == [Unroutable("no exchange 'gone'")]
    assert await publisher.publish([a_message("m4")]) == [Confirmed()]


async def test_an_exchange_deleted_later_closes_the_channel_and_is_found_missing_then(
    letterbox: Letterbox, a_publisher: PublisherFactory
) -> None:
    await letterbox.declare_exchange("short-lived")
    publisher = a_publisher()
    assert isinstance((await publisher.publish([a_message(exchange="short-lived")]))[0], Unroutable)
    await letterbox.delete_exchange("short-lived")

    (unknown,) = await publisher.publish([a_message(exchange="short-lived")])
    assert isinstance(unknown, Unanswered)
    assert "no exchange 'short-lived'" in unknown.text

    assert await publisher.publish([a_message(exchange="short-lived")]) == [
        Unroutable("no exchange 'short-lived'")
    ]


async def test_one_id_twice_in_a_batch_is_sent_one_after_the_other(
    letterbox: Letterbox, a_publisher: PublisherFactory
) -> None:
    outcomes = await a_publisher().publish(
        [a_message("same", to="nowhere"), a_message("other"), a_message("same"), a_message("same", body=b"3")]
    )

    assert isinstance(outcomes[0], Unroutable)
    assert outcomes[1:] == [Confirmed()] * 3
    assert await letterbox.ready() == 3


async def test_two_callers_take_turns(letterbox: Letterbox, a_publisher: PublisherFactory) -> None:
    publisher = a_publisher()
    async with asyncio.timeout(20), asyncio.TaskGroup() as callers:
        unroutable = callers.create_task(publisher.publish([a_message("same", to="nowhere")]))
        confirmed = callers.create_task(publisher.publish([a_message("same")]))

    assert isinstance(unroutable.result()[0], Unroutable)
    assert confirmed.result() == [Confirmed()]


async def test_while_the_broker_is_down_publishing_is_unavailable_and_works_afterwards(
    letterbox: Letterbox, proxy: TcpProxy, a_publisher: PublisherFactory
) -> None:
    publisher = a_publisher(url=proxy.url)
    assert await publisher.publish([a_message()]) == [Confirmed()]
    await proxy.refuse()
    await eventually(lambda: not publisher.is_open)

    with pytest.raises(Unavailable):
        await publisher.publish([a_message()])

    await proxy.heal()
    assert await publisher.publish([a_message()]) == [Confirmed()]
    assert await letterbox.ready() == 2


async def test_over_a_half_open_link_nothing_is_published(
    letterbox: Letterbox, proxy: TcpProxy, a_publisher: PublisherFactory
) -> None:
    publisher = a_publisher(url=proxy.url, publish_timeout_seconds=4)
    assert await publisher.publish([a_message("m1")]) == [Confirmed()]
    proxy.freeze()

    async with asyncio.timeout(40):
        with pytest.raises(Unavailable, match="no answer in time"):
            await publisher.publish([a_message("m2"), a_message("m3")])

    # What the network held back arrives now, and is not a message.
    await proxy.heal()
    assert await publisher.publish([a_message("m4")]) == [Confirmed()]
    assert [(await letterbox.take()).message_id for _ in range(2)] == ["m1", "m4"]
    assert await letterbox.ready() == 0


async def test_what_was_sent_into_silence_is_unknown(
    letterbox: Letterbox,
    proxy: TcpProxy,
    a_publisher: PublisherFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publisher = a_publisher(url=proxy.url, publish_timeout_seconds=1)
    await publisher.publish([a_message("m1")])
    _before_the_rest_is_sent(publisher, proxy.freeze, monkeypatch)

    async with asyncio.timeout(20):
        first, second = await publisher.publish([a_message("m2"), a_message("m3")])

    assert (type(first), type(second)) == (Unanswered, Unanswered)
    assert not publisher.is_open, "a connection that owes us answers is not used again"


async def test_a_connection_cut_during_a_publish_is_noticed_at_once(
    letterbox: Letterbox,
    proxy: TcpProxy,
    a_publisher: PublisherFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publisher = a_publisher(url=proxy.url, publish_timeout_seconds=600)
    await publisher.publish([a_message("m1")])
    _before_the_rest_is_sent(publisher, proxy.cut, monkeypatch)

    async with asyncio.timeout(20):
        (outcome,) = await publisher.publish([a_message("m2")])

    assert isinstance(outcome, Unanswered)
    assert await publisher.publish([a_message("m2")]) == [Confirmed()]


async def test_a_cancelled_publish_leaves_nothing_behind_that_confuses_the_next(
    letterbox: Letterbox,
    proxy: TcpProxy,
    a_publisher: PublisherFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publisher = a_publisher(url=proxy.url)
    await publisher.publish([a_message("m1")])
    reached = asyncio.Event()

    def freeze() -> None:
        proxy.freeze()
        reached.set()

    _before_the_rest_is_sent(publisher, freeze, monkeypatch)
    async with asyncio.timeout(20):
        publishing = asyncio.ensure_future(publisher.publish([a_message("m2")]))
        await reached.wait()
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing

    await proxy.heal()
    assert await publisher.publish([a_message("m3")]) == [Confirmed()]


def _before_the_rest_is_sent(
    publisher: Publisher, happens: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the broker's last sign of life and the messages."""
    connection = publisher._connection
    assert connection is not None
    finish = connection.finish

    async def sabotaged(batch: PublishBatch, payload: bytes) -> None:
        happens()
        await finish(batch, payload)

    monkeypatch.setattr(connection, "finish", sabotaged)


async def test_under_a_memory_alarm_nothing_is_published_then_or_later() -> None:
    async with await PrivateRabbitMQ.launch() as rabbitmq, Letterbox.at(rabbitmq.amqp_url) as letterbox:
        publisher = Publisher(BrokerAddress(urls=[rabbitmq.amqp_url]), publish_timeout_seconds=2)
        assert await publisher.publish([a_message("m1")]) == [Confirmed()]
        await rabbitmq.set_memory_alarm(True)

        for _ in range(3):
            async with asyncio.timeout(20):
                with pytest.raises(Unavailable, match="short of memory"):
                    await publisher.publish([a_message("m2"), a_message("m3")])
            assert publisher.is_blocked

        await rabbitmq.set_memory_alarm(False)
        await eventually(lambda: not publisher.is_blocked)
        assert await publisher.publish([a_message("m2")]) == [Confirmed()]
        assert [(await letterbox.take()).message_id for _ in range(2)] == ["m1", "m2"]
        assert await letterbox.ready() == 0
        await publisher.close()
