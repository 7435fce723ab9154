"""Keep an undecodable message from ending the connection that carries it.

Examples are a timestamp in micro- or nanoseconds, a message_id, header key or routing key that is not UTF-8, and
tables nested without end. The broker delivers them, pamqp raises, and aiormq's reader ends. All messages behind this
one would wait for ever, because the next connection gets the same message first. After `install` such properties are
decoded as far as possible and carry their raw bytes and the reason, and the delivery continues.

Two methods of pamqp's classes are replaced, because there is no other place: aiormq calls `pamqp.frame.unmarshal`,
which makes these objects itself. A subclass of connection or channel would get nothing but the error. The classes
themselves stay, because pamqp chooses by them how to marshal a frame.

Decoding properties only on demand would save nothing: the headers are most of the work (about 40 of 45 microseconds),
and the headers of every message are read.
"""

import struct

from pamqp.commands import Basic
from pamqp.header import ContentHeader

_CLASS_WEIGHT_BODY_SIZE = struct.Struct(">HHQ")
_TAG_AND_FLAGS = struct.Struct(">QB")

_decode_header = ContentHeader.unmarshal


class UndecodableProperties(Basic.Properties):
    """The properties that were decoded before the error. `raw` distinguishes two such messages."""

    reason: str
    raw: bytes


def install() -> None:
    """Replace the two decoders. Calling it again changes nothing."""
    ContentHeader.unmarshal = _unmarshal_header  # type: ignore[method-assign,assignment]  # the hook
    Basic.Deliver.unmarshal = _unmarshal_deliver  # type: ignore[method-assign,assignment]  # the hook


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
