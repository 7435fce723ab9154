"""Read an envelope's own fields from the beginning of a body that is too large to be parsed whole.

Promises: takes any bytes; a value that the cut ends in, or that nothing valid follows, counts as absent; a field of the
same name deeper inside is another field. Where a name repeats the last one counts, as Python's own parser has it.
Reading stops at the first byte that is not JSON. Nothing is built but the four fields.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from dlq_handler.text import int64_or_none

# Possessive quantifiers: the parser keeps nothing to go back to, however long a string is.
_SPACE = r"[ \t\n\r]*+"
_STRING = r'"(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+"'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
_KEY = re.compile(f"{_SPACE}({_STRING}){_SPACE}:{_SPACE}")
_SCALAR = re.compile(f"{_STRING}|{_NUMBER}|true|false|null")
_OPEN = re.compile(f"{_SPACE}{{")
_CLOSE = re.compile(f"{_SPACE}}}")
_COMMA_OR_CLOSE = re.compile(f"{_SPACE}([,}}])")
_STRING_OR_BRACKET = re.compile(rf'[^"{{}}\[\]]*+(?:([{{}}\[\]])|{_STRING})')
_OPENED_BY = {"}": "{", "]": "["}

_Wanted = Mapping[str, "_Wanted"]
_FIELD: _Wanted = {}
_ENVELOPE: _Wanted = {
    "message_type": _FIELD,
    "payload": {"execution_id": _FIELD, "worker_id": _FIELD, "action_ref": _FIELD},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixFields:
    """None: absent from the prefix, or of another type."""

    message_type: str | None
    execution_id: int | None
    worker_id: int | None
    action_ref: str | None


def read_prefix(prefix: bytes) -> PrefixFields:
    text = _decoded(prefix)
    found: dict[str, str] = {}
    if (opening := _OPEN.match(text)) is not None:
        _read_object(text, opening.end(), _ENVELOPE, found)
    return PrefixFields(
        message_type=_text(found.get("message_type")),
        execution_id=_number(found.get("execution_id")),
        worker_id=_number(found.get("worker_id")),
        action_ref=_text(found.get("action_ref")),
    )


def _decoded(prefix: bytes) -> str:
    try:
        return prefix.decode("utf-8")
    except UnicodeDecodeError as error:
        # Usually a character that the cut divides.
        return prefix[: error.start].decode("utf-8")


def _read_object(text: str, at: int, wanted: _Wanted, found: dict[str, str]) -> int | None:
    """Put the wanted fields into `found`, as they are written. `at`: behind the opening brace.

    Returns the position behind the closing brace; None when the text ends before it, or is not JSON.
    """
    if (closing := _CLOSE.match(text, at)) is not None:
        return closing.end()
    while (key := _KEY.match(text, at)) is not None:
        name, start = _name(key[1]), key.end()
        is_wanted, inner = name in wanted, wanted.get(name)
        for replaced in (name, *inner) if inner is not None else ():
            found.pop(replaced, None)
        if inner and text.startswith("{", start):
            end = _read_object(text, start + 1, inner, found)
        else:
            end = _end_of_value(text, start)
        following = None if end is None else _COMMA_OR_CLOSE.match(text, end)
        if following is None:
            return None
        # Only now: 12 is no number in "12abc", nor where the cut may have taken digits off.
        if is_wanted and not inner:
            found[name] = text[start:end]
        at = following.end()
        if following[1] == "}":
            return at
    return None


def _end_of_value(text: str, at: int) -> int | None:
    if not text.startswith(("{", "["), at):
        scalar = _SCALAR.match(text, at)
        return None if scalar is None else scalar.end()
    opened: list[str] = []
    while (part := _STRING_OR_BRACKET.match(text, at)) is not None:
        at, bracket = part.end(), part[1]
        if bracket is None:
            continue
        if bracket in "{[":
            opened.append(bracket)
        elif opened.pop() != _OPENED_BY[bracket]:
            return None
        elif not opened:
            return at
    return None


def _name(token: str) -> str:
    """What the token of a key says; an escaped letter in it is the letter."""
    return str(json.loads(token)) if "\\" in token else token[1:-1]


def _text(token: str | None) -> str | None:
    return str(json.loads(token)) if token is not None and token.startswith('"') else None


def _number(token: str | None) -> int | None:
    # More digits than a bigint has are not converted: the time for that grows with their square.
    if token is None or len(token) > len(str(-(2**63))) or not token.removeprefix("-").isdigit():
        return None
    return int64_or_none(int(token))
