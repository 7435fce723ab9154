"""Mask what may be secret in what a letter carries, before anybody sees it. Pure.

Promises to hide too much rather than too little: a name that holds pass, secret, token, key, auth or credential hides
its whole value, also where it stands in the middle of a sentence; `env_vars` are hidden whole; in a URL everything up
to its `@` is. Left readable are what AMQP itself calls a key, the routing keys: without them nobody sees which way a
letter went, and whoever puts a secret there has told the whole broker. Never raises, whatever the input.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

MASK = "***"
SHOWN_BYTES = 16_384
_DEEPEST = 40

_WORDS = "pass|secret|token|key|auth|credential"
_SECRET_NAME = re.compile(rf"(?i){_WORDS}")
_ROUTING_KEY = re.compile(r"(?i)(?:^|[-_.])routing[-_]?keys?$")
_ENVIRONMENT = re.compile(r"(?i)^(?:env|environ|env[-_]?vars?|environment[-_]?variables?)$")

# Below, each pattern reads every character a bounded number of times (possessive, anchored at the beginning of a name):
# a body is as long and as odd as its sender likes.

# `//user:password@`, `//token@`. A password may hold an unescaped `/` or `@`: it ends at the last `@` before a blank.
_USERINFO = re.compile(r"(?<=://)(?:[^\s/?#'\"<>]*@|[^:@\s'\"/]*:(?:(?!://)[^\s'\"<>])*@)")
# `password=x`, `"token": "x"`, `Authorization: Bearer x`, in text that is no JSON or within a string of it.
_SPOKEN = re.compile(
    rf"""(?ix)
    (?<![\w.-]) (?= [\w.-]*? (?: {_WORDS} ) )
    (?P<name> [\w.-]++ ) (?P<between> \\?["']? \s*+ [=:] \s*+ )
    (?: (?: bearer | basic | digest ) \s++ )?
    (?: \\?" (?: [^"\\] | \\. )*+ "? | ' (?: [^'\\] | \\. )*+ '? | [^\s,;&"'}}\])]++ )"""
)
# In JSON that was cut off, or never was quite one: from here on nobody can say where the secret ends.
_OPENED = re.compile(
    rf"""(?ix) " (?: (?= [^"\\]*? (?: {_WORDS} ) ) [^"\\]*+ | env(?:iron|ironment)? (?: [-_]? var(?:iable)?s? )? )
    " \s*+ : \s*+ [\[{{]"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedBody:
    text: str
    size: int
    """In bytes, of the body as it was given."""
    is_cut: bool
    """There is more than is shown."""
    is_json: bool


def is_secret_key(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None and _ROUTING_KEY.search(name) is None


def masked(value: object) -> object:
    """The same shape, made of what JSON knows; `value` is left as it was."""
    return _masked(value, 0)


def masked_text(text: str) -> str:
    return _SPOKEN.sub(_hidden, _USERINFO.sub(f"{MASK}@", _printable(text)))


def masked_body(body: bytes, limit: int = SHOWN_BYTES) -> MaskedBody:
    text = body.decode("utf-8", "replace")
    try:
        value, is_json = json.loads(text), True
        shown = json.dumps(masked(value), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        opened, is_json = _OPENED.search(text), False
        shown = masked_text(text if opened is None else text[: opened.end() - 1])
        if opened is not None:
            shown += f"{MASK} (the rest is no whole JSON, so what is secret in it cannot be told)"
    kept = _printable(shown).encode()[:limit].decode("utf-8", "ignore")
    return MaskedBody(text=kept, size=len(body), is_cut=len(kept) < len(_printable(shown)), is_json=is_json)


def _masked(value: object, depth: int) -> object:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return masked_text(value)
        case Mapping() if depth < _DEEPEST:
            return {_printable(str(name)): _of_name(str(name), one, depth) for name, one in value.items()}
        case list() | tuple() if depth < _DEEPEST:
            return [_masked(one, depth + 1) for one in value]
        case _:
            return MASK


def _of_name(name: str, value: object, depth: int) -> object:
    if value is None or isinstance(value, bool):
        return value  # says that there is one, and not which
    if is_secret_key(name) or _ENVIRONMENT.match(name):
        return MASK
    return _masked(value, depth + 1)


def _hidden(found: re.Match[str]) -> str:
    if _ROUTING_KEY.search(found["name"]):
        return found[0]
    return f"{found['name']}{found['between']}{MASK}"


def _printable(text: str) -> str:
    """A lone surrogate cannot be sent to anybody."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
