"""Decode equal header tables once.

Messages that were dead-lettered from one queue within one second carry the same x-death, byte for byte, and in a mass
expiry they arrive by thousands. Decoding it is nearly half of the work of aiormq and pamqp for a message. Equal
tables become one object, which must not be changed. The number and size of kept tables are bounded, whatever senders
do.
"""

from pamqp import decode
from pamqp.common import FieldTable

MAX_TABLES = 256
MAX_TABLE_BYTES = 2048

_decoded: dict[bytes, tuple[int, FieldTable]] = {}


def install() -> None:
    """Replace pamqp's decoder of tables. Calling it again changes nothing."""
    decode.METHODS["table"] = _decode_table


def _decode_table(data: bytes) -> tuple[int, FieldTable]:
    raw = data[: 4 + int.from_bytes(data[:4])]
    if (table := _decoded.get(raw)) is None:
        table = decode.field_table(raw)
        if len(raw) <= MAX_TABLE_BYTES:
            if len(_decoded) >= MAX_TABLES:
                _decoded.clear()
            _decoded[raw] = table
    return table
