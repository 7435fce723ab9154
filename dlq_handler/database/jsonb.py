"""JSON as PostgreSQL's jsonb takes it: NUL and lone surrogates, which it refuses even as escapes, are written out."""

import json
from collections.abc import Mapping

from dlq_handler.text import storable

# json.dumps would build an encoder for each call.
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


def as_jsonb(value: Mapping[str, object]) -> str:
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
