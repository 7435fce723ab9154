"""Publish bytes that no client library would send: properties and routing keys as they are given."""

import struct

import pamqp.frame
from aiormq.abc import AbstractChannel, ChannelFrame
from pamqp.body import ContentBody
from pamqp.commands import Basic

# What the broker proposes for a frame; eight bytes of it are not content.
FRAME_BYTES = 131_072 - 8


async def publish_bytes(
    channel: AbstractChannel, exchange: str, *, routing_key: bytes, properties: bytes, body: bytes
) -> None:
    """`properties`: with their flags. Nothing is waited for; a call on this channel is answered after it."""
    publish = (
        struct.pack(">IH", Basic.Publish.index, 0) + _short(exchange.encode()) + _short(routing_key) + b"\0"
    )
    header = struct.pack(">HHQ", 60, 0, len(body)) + properties
    beginning = _frame(1, channel.number, publish) + _frame(2, channel.number, header)
    await _write(channel, beginning)
    # One by one, and each waits for room: a body may be larger than what should be held twice.
    for start in range(0, len(body), FRAME_BYTES):
        part = ContentBody(body[start : start + FRAME_BYTES])
        await _write(channel, pamqp.frame.marshal(part, channel.number))
    # The broker counts one message more than the client knows of.
    channel.delivery_tag += 1  # type: ignore[attr-defined]  # the abstract class does not name it


async def _write(channel: AbstractChannel, payload: bytes) -> None:
    await channel.connection.write_queue.put(ChannelFrame(payload=payload, should_close=False))


def _short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"
