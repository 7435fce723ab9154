"""Headers of a letter as JSON text, to be kept for people. Total: whatever a sender put in, the answer is a JSON object
that PostgreSQL takes and that is not too long.
"""

import json
import math
from collections.abc import Mapping
from datetime import date, datetime

from dlq_handler.text import storable

LONGEST = 8192
_LONGEST_TEXT = 500
_MOST_ITEMS = 50
_DEEPEST = 6

CUT = "…"


def headers_as_json(headers: Mapping[str, object]) -> str:
    try:
        text = _ENCODE(headers)
    except (TypeError, ValueError, RecursionError):
        # A key that is no text, a number that JSON has not, tables without end.
        text = ""
    # Most are short, and have nothing that jsonb refuses.
    if text and len(text) <= LONGEST and "\\u0000" not in text and "\\ud" not in text:
        return text
    return _bounded(headers)


def _as_text(value: object) -> str:
    """What JSON has no word for."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)


# json.dumps would build an encoder for each call. What came over the wire contains no circles.
_ENCODE = json.JSONEncoder(
    separators=(",", ":"), allow_nan=False, check_circular=False, default=_as_text
).encode


def _bounded(headers: Mapping[str, object]) -> str:
    """The first ones, each cut where it is too long; what did not fit is named."""
    kept: dict[str, object] = {}
    room = LONGEST - 200
    for name, value in headers.items():
        shown = {storable(str(name))[:_LONGEST_TEXT]: _plain(value, _DEEPEST)}
        room -= len(_ENCODE(shown))
        if room < 0:
            return _ENCODE(kept | {CUT: f"{len(headers) - len(kept)} more headers, too long to be kept"})
        kept |= shown
    return _ENCODE(kept)


def _plain(value: object, depth: int) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping | list | tuple) and depth == 0:
        return CUT
    if isinstance(value, Mapping):
        some = list(value.items())[:_MOST_ITEMS]
        return {storable(str(name))[:_LONGEST_TEXT]: _plain(inner, depth - 1) for name, inner in some}
    if isinstance(value, list | tuple):
        return [_plain(inner, depth - 1) for inner in value[:_MOST_ITEMS]]
    text = storable(value if isinstance(value, str) else _as_text(value))
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + CUT
