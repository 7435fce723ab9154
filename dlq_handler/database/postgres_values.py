"""Values as PostgreSQL returns and takes them: timestamps beyond those of Python, JSON, quoted identifiers.

PostgreSQL knows infinity, years before 1 and years beyond 9999. The driver returns infinity without a time zone, and
refuses the far years. A comparison with one of these would stop the loop that read it, again and again. Here every one
becomes the first or the last moment that Python has, in UTC.
"""

import json
import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from dlq_handler.text import storable

FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)
LAST_MOMENT = datetime.max.replace(tzinfo=UTC)

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (FIRST_MOMENT - _EPOCH) // _MICROSECOND
_LAST = (LAST_MOMENT - _EPOCH) // _MICROSECOND
_MINUS_INFINITY, _INFINITY = -(2**63), 2**63 - 1
_FORMAT = struct.Struct("!q")

# json.dumps would build an encoder for each call.
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


def quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def readable(moment: str) -> str:
    """SQL: this column or expression, NULL where Python has no such moment."""
    return f"CASE WHEN {moment} BETWEEN '0001-01-02 00:00Z' AND '9999-12-30 00:00Z' THEN {moment} END"


def age_seconds(moment: str) -> str:
    """SQL: its age by the database's clock, NULL where Python has no such moment."""
    return f"CAST(extract(epoch FROM clock_timestamp() - {readable(moment)}) AS double precision)"


async def use_total_codec(connection: Any) -> None:
    """Of an asyncpg connection: no timestamptz raises when it is read, and infinity is written as it was read."""
    await connection.set_type_codec(
        "timestamptz", schema="pg_catalog", encoder=_encode, decoder=_decode, format="binary"
    )


def _encode(moment: datetime) -> bytes:
    if moment == LAST_MOMENT:
        return _FORMAT.pack(_INFINITY)
    if moment == FIRST_MOMENT:
        return _FORMAT.pack(_MINUS_INFINITY)
    return _FORMAT.pack((moment - _EPOCH) // _MICROSECOND)


def _decode(data: bytes) -> datetime:
    (microseconds,) = _FORMAT.unpack(data)
    if microseconds >= _LAST:
        return LAST_MOMENT
    return FIRST_MOMENT if microseconds <= _FIRST else _EPOCH + timedelta(microseconds=microseconds)


def as_jsonb(value: Mapping[str, object]) -> str:
    """NUL and lone surrogates, which jsonb refuses even as escapes, are written out."""
    text = _ENCODE(value)
    # Most texts have neither.
    return _ENCODE(_storable(value)) if "\\u0000" in text or "\\ud" in text else text


def _storable(value: object) -> object:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {storable(str(name)): _storable(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(inner) for inner in value]
    return value
