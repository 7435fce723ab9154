"""Keep one undecodable letter from ending the connection that carries it.

A timestamp in micro- or nanoseconds, a message_id, header key or routing key that is not UTF-8, tables nested without
end: the broker passes them on, pamqp raises, aiormq's reader dies of it, and every letter behind this one waits for
ever, since the next connection meets the same letter first. After `install` such a header decodes as far as it can,
carries the rest as raw bytes with the reason, and the delivery goes on.

Two methods of pamqp's classes are replaced, because pamqp offers no other place: aiormq calls the function
`pamqp.frame.unmarshal`, which builds these classes by name, so a subclass of the connection or of the channel would see
the error only when the frame is lost already. The classes themselves stay: aiormq has imported them, and pamqp tells
frames apart by them when it sends.
"""

import struct

from pamqp.commands import Basic
from pamqp.header import ContentHeader

_FIXED = struct.Struct(">HHQ")

_decode_header = ContentHeader.unmarshal
_decode_deliver = Basic.Deliver.unmarshal


class UndecodableProperties(Basic.Properties):
    """What could be decoded before pamqp gave up; `raw` tells two such letters apart."""

    reason: str
    raw: bytes


def install() -> None:
    """Replace the two decoders. Calling it again changes nothing."""
    ContentHeader.unmarshal = _unmarshal_header  # type: ignore[method-assign,assignment]  # the hook
    Basic.Deliver.unmarshal = _unmarshal_deliver  # type: ignore[method-assign,assignment]  # the hook


def _unmarshal_header(header: ContentHeader, data: bytes) -> None:
    try:
        _decode_header(header, data)
    except Exception as error:
        # Whatever the bytes did to the decoder, the letters behind must come. The body size is needed: without it the frames that follow cannot be told apart.
        _, header.weight, header.body_size = _FIXED.unpack_from(data)
        header.properties = _salvage(header.properties, error, data[_FIXED.size :])


def _salvage(decoded: Basic.Properties, error: Exception, raw: bytes) -> UndecodableProperties:
    properties = UndecodableProperties()
    for name in Basic.Properties.attributes():
        setattr(properties, name, getattr(decoded, name, None))
    properties.reason = f"AMQP properties cannot be decoded: {type(error).__name__}: {error}"[:300]
    properties.raw = raw
    return properties


def _unmarshal_deliver(deliver: Basic.Deliver, data: bytes) -> None:
    try:
        _decode_deliver(deliver, data)
    except UnicodeDecodeError:
        tag, data = _short_text(data)
        deliver.consumer_tag = tag
        deliver.delivery_tag, flags = struct.unpack_from(">QB", data)
        deliver.redelivered = bool(flags & 1)
        deliver.exchange, data = _short_text(data[9:])
        deliver.routing_key, _ = _short_text(data)


def _short_text(data: bytes) -> tuple[str, bytes]:
    end = 1 + data[0]
    return data[1:end].decode("utf-8", "backslashreplace"), data[end:]
