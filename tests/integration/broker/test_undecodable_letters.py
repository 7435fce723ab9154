"""One letter that the client cannot decode, in front of good ones: it is unreadable, they come all the same."""

import struct

import pytest

from tests.integration.broker.conftest import SourceFactory
from tests.integration.broker.letterbox import Letterbox, execution_ids

HEADERS, MESSAGE_ID, TIMESTAMP, TYPE = 0x2000, 0x0080, 0x0040, 0x0020


def properties(flags: int, content: bytes) -> bytes:
    return struct.pack(">H", flags) + content


def table(*entries: bytes) -> bytes:
    content = b"".join(entries)
    return struct.pack(">I", len(content)) + content


def nested(levels: int) -> bytes:
    inner = table()
    for _ in range(levels):
        inner = table(b"\x01kF" + inner)
    return inner


UNDECODABLE = {
    "timestamp in microseconds": properties(TIMESTAMP, struct.pack(">Q", 1_700_000_000_000_000)),
    "timestamp in nanoseconds": properties(TIMESTAMP, struct.pack(">Q", 1_700_000_000_000_000_000)),
    "message id not UTF-8": properties(MESSAGE_ID, b"\x03\xff\xfe\xfd"),
    "type not UTF-8": properties(TYPE, b"\x02\xc3\x28"),
    "header key not UTF-8": properties(HEADERS, table(b"\x02\xff\xfeS" + struct.pack(">I", 1) + b"x")),
    "timestamp in a header in nanoseconds": properties(
        HEADERS, table(b"\x02atT" + struct.pack(">Q", 1_700_000_000_000_000_000))
    ),
    "tables nested without end": properties(HEADERS, nested(2000)),
}


@pytest.mark.parametrize("kind", UNDECODABLE)
async def test_the_letters_behind_an_undecodable_one_arrive(
    kind: str, letterbox: Letterbox, a_source: SourceFactory
) -> None:
    await letterbox.put_bytes(UNDECODABLE[kind])
    await letterbox.put(1, 2, 3)
    source = a_source(batch_size=4, batch_wait_seconds=20)
    await source.open()

    batch = await source.next_batch(timeout_seconds=20)

    assert execution_ids(batch) == [None, 1, 2, 3]
    parse_error = batch[0].item.parse_error
    assert parse_error is not None
    assert parse_error.startswith("AMQP properties cannot be decoded")
    assert [delivery.item.parse_error for delivery in batch[1:]] == [None] * 3
    assert await source.acknowledge(batch) == 4
    assert source.is_consuming


async def test_a_routing_key_that_is_not_utf8_is_shown_escaped(
    letterbox: Letterbox, a_source: SourceFactory
) -> None:
    await letterbox.put_bytes(properties(0, b""), routing_key=b"key \xff\xfe")
    await letterbox.put(1)
    source = a_source(batch_size=2, batch_wait_seconds=20)
    await source.open()

    odd, good = await source.next_batch(timeout_seconds=20)

    assert odd.item.routing_key == "key \\xff\\xfe"
    assert good.item.execution_id == 1


async def test_two_undecodable_letters_are_two_letters(letterbox: Letterbox, a_source: SourceFactory) -> None:
    await letterbox.put_bytes(UNDECODABLE["timestamp in microseconds"])
    await letterbox.put_bytes(UNDECODABLE["timestamp in nanoseconds"])
    source = a_source(batch_size=2, batch_wait_seconds=20)
    await source.open()

    one, other = await source.next_batch(timeout_seconds=20)

    assert one.item.key != other.item.key
