"""Mask secrets in message content, log records and settings before a person can read them. Pure.

One list of names decides for all three. Masking hides too much rather than too little: the whole value under a secret
name, `env_vars` and similar objects, everything before the `@` of a URL, bearer tokens, JWTs, PEM blocks. Routing keys
stay readable: they show the route of a message. No function here raises, whatever the input.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

MASK = "***"
SHOWN_BYTES = 16_384
_DEEPEST = 40

# A name that contains one of these is secret. `passed` and the like are counts in dlq-handler's log records.
_WORDS = "pass(?!ed|es|ing)|pwd|secret|token|key|auth|credential|cookie"
_VARIABLES = r"env(?:iron)?|env(?:ironment)?[-_]?var(?:iable)?s?"
_SECRET_NAME = re.compile(rf"(?i){_WORDS}")
_ROUTING_KEY = re.compile(r"(?i)(?:^|[-_.])routing[-_]?keys?$")
_ENVIRONMENT = re.compile(rf"(?i)(?:{_VARIABLES})")
# `["--password", "x"]`, `["Authorization", "Bearer x"]`: an item of a list that names the next one.
_LISTED_NAME = re.compile(r"-{0,2}[\w.-]{1,64}:?")
# `{"name": "PASSWORD", "value": "x"}`: one member names the other.
_NAMING = ("name", "key", "variable", "header")
_NAMED = ("value", "values", "val")

# Senders control length and content of a body. Each pattern below therefore reads every character a bounded number of
# times: possessive quantifiers, anchored at the beginning of a name.

# `//user:password@`, `//token@`. A password may hold an unescaped `/` or `@`: it ends at the last `@` before a blank.
_USERINFO = re.compile(r"(?<=://)(?:[^\s/?#'\"<>]*@|[^:@\s'\"/]*:(?:(?!://)[^\s'\"<>])*@)")
_BARE_NAME = (
    rf"(?<![\w.-]) (?: (?= [\w.-]*? (?: {_WORDS} ) ) | (?= (?: {_VARIABLES} ) (?! [\w.-] ) ) ) [\w.-]++"
)
# Quotes may be escaped, once for each string that the text was put into. Adjacent ones continue the value.
_QUOTED = r"""[bruf]{0,2} (?: \\*+ " (?: [^"\\] | \\. )*+ "? | \\*+ ' (?: [^'\\] | \\. )*+ '? )++"""
_WORD = r"""[^\s,;&"'}\])]++"""
_IS = r"""\\*+ ["']? \s*+ [=:]{1,2} >? \s*+"""
# `password=x`, `"token": "x"`. After a colon and a blank, as in a header or in YAML, the value is the whole line.
_ASSIGNED = re.compile(
    rf"""(?ix) (?P<shown> (?P<name> {_BARE_NAME} )
    (?: \\*+ ["']? \s*+ : [\ \t]++ (?P<line>) | {_IS} ) )
    (?: {_QUOTED} | (?(line) [^\n"'<>]++ | {_WORD} ) )"""
)
# `--password x`, `"--password", "x"`.
_OPTION = re.compile(
    rf"""(?ix) (?P<shown> (?<![\w.-]) (?P<name> --? (?= [\w-]*? (?: {_WORDS} ) ) [\w-]++ )
    (?: \s++ | \\*+ ["'] \s*+ , \s*+ ) ) (?! - ) (?: {_QUOTED} | {_WORD} )"""
)
_PAIR = re.compile(
    rf"""(?ix) (?P<shown> (?<![\w.-]) (?: {"|".join(_NAMING)} ) {_IS} \\*+ ["']?
    (?P<name> (?= [\w.-]*? (?: {_WORDS} ) ) [\w.-]++ )
    \\*+ ["']? ,? \s*+ \\*+ ["']? (?: {"|".join(_NAMED)} ) {_IS} ) (?: {_QUOTED} | [^\n,}}]++ )"""
)
_ELEMENT = rf"< (?P<element> (?= [\w.:-]*? (?: {_WORDS} ) ) [\w.:-]++ ) [^<>]*+ >"
_XML = re.compile(rf"(?ix) (?P<shown> {_ELEMENT} ) [^<]++")
_BEARER = re.compile(r"(?i)(?<![\w-])(?P<shown>bearer\s++|basic\s++(?=[a-z0-9+/=]{6}))[^\s,;\"'<>]++")
_JWT = re.compile(r"(?<![\w-])eyJ[\w-]*+\.[\w-]++(?:\.[\w-]*+){0,3}")
_PEM = re.compile(
    r"(?P<shown>-----BEGIN [A-Z0-9 ]{1,40}-----)(?:(?!-----END ).)*+(?:-----END [A-Z0-9 ]{1,40}-----)?",
    re.DOTALL,
)
# A list, an object, an element or a block that begins under a secret name, in a text that is not JSON: the end of the
# secret is unknown, so the rest of the text is hidden. `\n` is the line break of a quoted string.
_OPENED = re.compile(
    rf"""(?ix)
    (?: (?: (?P<bare> {_BARE_NAME} | (?<![\w.-]) environment )
      | ["'] (?P<quoted> (?= [^"'\\]*? (?: {_WORDS} ) ) [^"'\\]*+ ) (?= [\\"'] ) )
      (?: {_IS} (?P<opening> [\w.]*+ [\[{{(] | [|>][+-]? [ \t\r]*+ \n | \\++ [nr] )
        | \\*+ ["']? [\ \t]*+ : [\ \t]*+ (?P<block> \r?\n ) )
    | {_ELEMENT} \s*+ (?P<inner> < (?! / ) ) )"""
)

# `scheme://user:password@host` in dlq-handler's settings: the user stays.
_PASSWORD_IN_URL = re.compile(r"(?<=://)([^:@]*):.*@", re.DOTALL)
_PASSWORD_IN_TEXT = re.compile(r"(?<=://)([^:@\s'\"]*):(?:(?!://)[^\s'\"<>])*@")
# `?password=...` in a URL and `password=... host=...` in a libpq keyword string, quoted or not.
_LIBPQ = re.compile(r"(?i)\b((?:ssl)?password|passwd|pwd)(\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&'\"]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedBody:
    text: str | None
    """None: the body is not JSON, and not shown here; or it is not text."""
    size: int
    """In bytes, of the body as it was given."""
    is_cut: bool
    """The body is longer than `text`."""
    is_json: bool


@lru_cache(maxsize=1024)  # called for each value of each log record; the names are few
def is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None and _ROUTING_KEY.search(name) is None


def masked(value: object) -> object:
    """A copy of the same shape, made of JSON's types."""
    return _masked(value, 0)


def masked_object(value: Mapping[str, object]) -> dict[str, object]:
    return cast("dict[str, object]", masked(value))


def masked_text(text: str) -> str:
    """For text that a sender wrote, or that may quote a message."""
    return _masked_text(text, 0)


def masked_body(body: bytes, *, is_text_shown: bool, limit: int = SHOWN_BYTES) -> MaskedBody:
    """`is_text_shown`: the reader may see a body that is not JSON. Its secrets are masked too, less reliably."""
    text, is_json = _readable(body, is_text_shown=is_text_shown)
    if text is None:
        return MaskedBody(text=None, size=len(body), is_cut=False, is_json=is_json)
    whole = _printable(text)
    shown = whole.encode()[:limit].decode("utf-8", "ignore")
    return MaskedBody(text=shown, size=len(body), is_cut=len(shown) < len(whole), is_json=is_json)


def masked_url(url: str) -> str:
    """For one URL or libpq string of the settings. An odd one loses everything up to its last `@`."""
    return _LIBPQ.sub(rf"\1\2{MASK}", _PASSWORD_IN_URL.sub(rf"\1:{MASK}@", url))


def without_passwords(text: str) -> str:
    """For text of dlq-handler or of a driver, which may quote a URL of the settings but no message."""
    if "://" not in text and "=" not in text:  # nearly every log value: no regular expression for it
        return text
    return _LIBPQ.sub(rf"\1\2{MASK}", _PASSWORD_IN_TEXT.sub(rf"\1:{MASK}@", text))


def _readable(body: bytes, *, is_text_shown: bool) -> tuple[str | None, bool]:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None, False
    # Plain UTF-16 is valid UTF-8: its words are readable between the zeros, but no pattern finds them.
    if "\0" in text:
        return None, False
    try:
        return json.dumps(masked(json.loads(text)), indent=2, ensure_ascii=False), True
    except (ValueError, RecursionError):
        return (masked_text(text) if is_text_shown else None), False


def _masked(value: object, depth: int) -> object:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return _masked_text(value, depth)
        case Mapping() if depth < _DEEPEST:
            is_pair = any(
                str(name).lower() in _NAMING and is_secret_name(str(one)) for name, one in value.items()
            )
            return {
                _masked_text(str(name), _DEEPEST): MASK
                if is_pair and str(name).lower() in _NAMED
                else _masked_member(str(name), one, depth)
                for name, one in value.items()
            }
        case list() | tuple() if depth < _DEEPEST:
            return [
                MASK if _is_listed_name(before) else _masked(one, depth + 1)
                for before, one in zip((None, *value), value, strict=False)
            ]
        case _:
            return MASK


def _masked_member(name: str, value: object, depth: int) -> object:
    if value is None or isinstance(value, bool):
        return value  # shows that there is a secret, and not which
    is_environment = _ENVIRONMENT.fullmatch(name) or (
        name.lower() == "environment" and isinstance(value, (Mapping, list, tuple))
    )
    return MASK if is_environment or is_secret_name(name) else _masked(value, depth + 1)


def _is_listed_name(item: object) -> bool:
    return isinstance(item, str) and _LISTED_NAME.fullmatch(item) is not None and is_secret_name(item)


def _masked_text(text: str, depth: int) -> str:
    text = _printable(text).replace("\0", "")
    # JSON inside a string is masked as JSON, which shows where a secret ends.
    if depth < _DEEPEST and text.lstrip()[:1] in ("{", "[", '"'):
        with suppress(ValueError, RecursionError):
            return json.dumps(_masked(json.loads(text), depth + 1), ensure_ascii=False)
    text = _PEM.sub(_hidden, text)
    for opened in _OPENED.finditer(text):
        name = opened["bare"] or opened["quoted"] or opened["element"]
        if not _ROUTING_KEY.search(name):
            begins = max(opened.start(group) for group in ("opening", "block", "inner"))
            return f"{_masked_line(text[:begins])}{MASK} (the rest is not JSON and may be secret)"
    return _masked_line(text)


def _masked_line(text: str) -> str:
    shown = _USERINFO.sub(f"{MASK}@", text)
    for pattern in (_PAIR, _OPTION, _ASSIGNED, _XML, _BEARER):
        shown = pattern.sub(_hidden, shown)
    return _JWT.sub(MASK, shown)


def _hidden(found: re.Match[str]) -> str:
    name = found.groupdict().get("name")
    return found[0] if name is not None and _ROUTING_KEY.search(name) else f"{found['shown']}{MASK}"


def _printable(text: str) -> str:
    """A lone surrogate cannot be encoded."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
