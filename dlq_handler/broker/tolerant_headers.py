"""Keep one undecodable letter from ending the connection that carries it.

A timestamp in micro- or nanoseconds; a message_id, header key or routing key that is not UTF-8; tables nested
without end: the broker passes them on, pamqp raises, aiormq's reader dies of it, and every letter behind this
one waits for ever, since the next connection meets the same letter first. After `install` such properties are
decoded as far as they can be and carry their raw bytes and the reason, and the delivery goes on.

Two methods of pamqp's classes are replaced, because there is no other place: aiormq calls the function
`pamqp.frame.unmarshal`, which makes these objects itself, so that a subclass of connection or channel would
see nothing but the error. The classes stay, since pamqp tells by them what it is asked to send.

Decoding properties only when they are asked for would save nothing: the headers are most of the work (some
40 of 45 microseconds) and every letter's are read.
"""

import struct

from pamqp.commands import Basic
from pamqp.header import ContentHeader

_CLASS_WEIGHT_BODY_SIZE = struct.Struct(">HHQ")
_TAG_AND_FLAGS = struct.Struct(">QB")

_decode_header = ContentHeader.unmarshal


class UndecodableProperties(Basic.Properties):
    """What was decoded before pamqp gave up. `raw` tells two such letters apart."""

    reason: str
    raw: bytes


def install() -> None:
    """Replace the two decoders. Calling it again changes nothing."""
    ContentHeader.unmarshal = _unmarshal_header  # type: ignore[method-assign,assignment]  # the hook
    Basic.Deliver.unmarshal = _unmarshal_deliver  # type: ignore[method-assign,assignment]  # the hook


def _unmarshal_header(header: ContentHeader, data: bytes) -> None:
    try:
        _decode_header(header, data)
    except Exception as error:  # whatever these bytes do to the decoder, the letters behind must come
        # Without the body's size the frames that follow could not be told apart.
        _, header.weight, header.body_size = _CLASS_WEIGHT_BODY_SIZE.unpack_from(data)
        header.properties = _salvage(header.properties, error, data[_CLASS_WEIGHT_BODY_SIZE.size :])


def _salvage(decoded: Basic.Properties, error: Exception, raw: bytes) -> UndecodableProperties:
    properties = UndecodableProperties()
    for name in Basic.Properties.attributes():
        setattr(properties, name, getattr(decoded, name, None))
    properties.reason = f"AMQP properties cannot be decoded: {type(error).__name__}: {error}"[:300]
    properties.raw = raw
    return properties


def _unmarshal_deliver(deliver: Basic.Deliver, data: bytes) -> None:
    """As pamqp does it, but a name that is not UTF-8 is escaped instead of raised over."""
    deliver.consumer_tag, offset = _short_text(data, 0)
    deliver.delivery_tag, flags = _TAG_AND_FLAGS.unpack_from(data, offset)
    deliver.redelivered = bool(flags & 1)
    deliver.exchange, offset = _short_text(data, offset + _TAG_AND_FLAGS.size)
    deliver.routing_key, _ = _short_text(data, offset)


def _short_text(data: bytes, offset: int) -> tuple[str, int]:
    end = offset + 1 + data[offset]
    return data[offset + 1 : end].decode("utf-8", "backslashreplace"), end
