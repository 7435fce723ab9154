"""Replace some of pamqp's decoders, because aiormq and pamqp have no setting for what is needed here.

- An undecodable message must not end the connection that carries it: a timestamp in nanoseconds, a routing key that is
  not UTF-8, tables nested without end. pamqp raises, aiormq's reader ends, and the next connection gets the same
  message first. Here such properties are decoded as far as possible and carry their raw bytes and the reason.
- Equal header tables are decoded once. Messages that were dead-lettered from one queue within one second carry the same
  x-death, byte for byte, and in a mass expiry they arrive by thousands. Decoding it is nearly half of the libraries'
  work for a message. Equal tables become one object, which must not be changed. The memory for it is bounded.
- Frames have at most 128 KiB. aiormq holds one frame in memory and takes the `frame_max` that the broker proposes. A
  broker may be configured for more, or for no limit (0): a body of 128 MB would arrive in one piece.

Methods of pamqp's classes are replaced: aiormq calls `pamqp.frame.unmarshal`, which makes these objects itself, so a
subclass of connection or channel would get nothing but the error. The classes themselves stay, because pamqp chooses by
them how to marshal a frame.
"""

import struct

from pamqp import decode
from pamqp.base import Frame
from pamqp.commands import Basic, Connection
from pamqp.common import FieldTable
from pamqp.header import ContentHeader

MAX_FRAME_BYTES = 131_072
MAX_TABLES = 256
MAX_TABLE_BYTES = 2048

_CLASS_WEIGHT_BODY_SIZE = struct.Struct(">HHQ")
_TAG_AND_FLAGS = struct.Struct(">QB")

_decode_header = ContentHeader.unmarshal
_decoded_tables: dict[bytes, tuple[int, FieldTable]] = {}


class UndecodableProperties(Basic.Properties):
    """The properties that were decoded before the error. `raw` distinguishes two such messages."""

    reason: str
    raw: bytes


def install() -> None:
    """Replace the decoders. Calling it again changes nothing."""
    ContentHeader.unmarshal = _unmarshal_header  # type: ignore[method-assign,assignment]  # the hook
    Basic.Deliver.unmarshal = _unmarshal_deliver  # type: ignore[method-assign,assignment]  # the hook
    Connection.Tune.unmarshal = _unmarshal_tune  # type: ignore[method-assign,assignment]  # the hook
    decode.METHODS["table"] = _decode_table


def _unmarshal_header(header: ContentHeader, data: bytes) -> None:
    try:
        _decode_header(header, data)
    except Exception as error:  # any error: the messages behind this one must arrive
        # Without the body's size the end of the message would be unknown.
        _, header.weight, header.body_size = _CLASS_WEIGHT_BODY_SIZE.unpack_from(data)
        header.properties = _keep_decoded(header.properties, error, data[_CLASS_WEIGHT_BODY_SIZE.size :])


def _keep_decoded(decoded: Basic.Properties, error: Exception, raw: bytes) -> UndecodableProperties:
    properties = UndecodableProperties()
    for name in Basic.Properties.attributes():
        setattr(properties, name, getattr(decoded, name, None))
    properties.reason = f"AMQP properties cannot be decoded: {type(error).__name__}: {error}"[:300]
    properties.raw = raw
    return properties


def _unmarshal_deliver(deliver: Basic.Deliver, data: bytes) -> None:
    """As pamqp does it, but a name that is not UTF-8 is escaped instead of refused."""
    deliver.consumer_tag, offset = _short_text(data, 0)
    deliver.delivery_tag, flags = _TAG_AND_FLAGS.unpack_from(data, offset)
    deliver.redelivered = bool(flags & 1)
    deliver.exchange, offset = _short_text(data, offset + _TAG_AND_FLAGS.size)
    deliver.routing_key, _ = _short_text(data, offset)


def _short_text(data: bytes, offset: int) -> tuple[str, int]:
    end = offset + 1 + data[offset]
    return data[offset + 1 : end].decode("utf-8", "backslashreplace"), end


def _unmarshal_tune(tune: Connection.Tune, data: bytes) -> None:
    """The broker's proposal; the protocol lets the client choose a smaller size."""
    Frame.unmarshal(tune, data)
    tune.frame_max = min(tune.frame_max or MAX_FRAME_BYTES, MAX_FRAME_BYTES)


def _decode_table(data: bytes) -> tuple[int, FieldTable]:
    raw = data[: 4 + int.from_bytes(data[:4])]
    if (table := _decoded_tables.get(raw)) is None:
        table = decode.field_table(raw)
        if len(raw) <= MAX_TABLE_BYTES:
            if len(_decoded_tables) >= MAX_TABLES:
                _decoded_tables.clear()
            _decoded_tables[raw] = table
    return table
