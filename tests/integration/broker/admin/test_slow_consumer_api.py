"""A management API that is slow, or silent about some queues: a look at consumers is bounded as a whole."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from dlq_handler.broker.admin.management_api import MAX_CONCURRENT, ManagementApi
from dlq_handler.errors import Unavailable

BODY = b'{"consumer_details": []}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(BODY),
    BODY,
)
FAILURE = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"


@asynccontextmanager
async def an_api(answer: Callable[[str], bytes | None]) -> AsyncIterator[ManagementApi]:
    """`answer`: to a question about this queue; None: no answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                queue = request.decode().split("?")[0].rpartition("/")[2]
                if (reply := answer(queue)) is None:
                    await reader.read()
                    return
                writer.write(reply)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield ManagementApi(f"http://127.0.0.1:{port}", vhost="/", timeout_seconds=60)


QUEUES = [f"worker.{number}.executions" for number in range(100)]


async def test_what_is_not_answered_in_time_is_unknown_or_was_not_asked() -> None:
    answers = iter([ANSWER] * 10)
    async with an_api(lambda _: next(answers, None)) as api:
        found = await api.consumers_of(QUEUES, within_seconds=3)
    assert list(found.values()).count(()) == 10
    assert list(found.values()).count(None) == MAX_CONCURRENT
    assert list(found) == QUEUES[: 10 + MAX_CONCURRENT], "in the given order"


@pytest.mark.parametrize("reply", [None, FAILURE])
async def test_queue_without_an_answer_does_not_hide_the_others(reply: bytes | None) -> None:
    async with an_api(lambda queue: reply if queue == QUEUES[0] else ANSWER) as api:
        found = await api.consumers_of(QUEUES, within_seconds=3)
    assert found == {**dict.fromkeys(QUEUES, ()), QUEUES[0]: None}


@pytest.mark.parametrize("reply", [None, FAILURE])
async def test_api_that_answers_nothing_is_unavailable(reply: bytes | None) -> None:
    async with an_api(lambda _: reply) as api:
        with pytest.raises(Unavailable):
            await api.consumers_of(QUEUES, within_seconds=0.5)
        with pytest.raises(Unavailable):
            await api.connection_ages(QUEUES, within_seconds=0.5)
