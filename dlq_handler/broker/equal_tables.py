"""Decode equal header tables once.

Letters that died in one queue within one second carry the same x-death to the byte, and in a mass expiry they come
by thousands; decoding it is nearly half of what aiormq and pamqp do for a letter. Equal tables become one object:
whoever gets one must not change it. What is kept is bounded by number and size, whatever senders put in.
"""

from pamqp import decode
from pamqp.common import FieldTable

MOST_TABLES = 256
LARGEST_TABLE_BYTES = 2048

_known: dict[bytes, tuple[int, FieldTable]] = {}


def install() -> None:
    """Replace pamqp's decoder of tables. Calling it again changes nothing."""
    decode.METHODS["table"] = _decode_table


def _decode_table(data: bytes) -> tuple[int, FieldTable]:
    raw = data[: 4 + int.from_bytes(data[:4])]
    if (table := _known.get(raw)) is None:
        table = decode.field_table(raw)
        if len(raw) <= LARGEST_TABLE_BYTES:
            if len(_known) >= MOST_TABLES:
                _known.clear()
            _known[raw] = table
    return table
