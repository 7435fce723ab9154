"""Mask what may be secret in what a letter carries, before anybody sees it. Pure.

Promises to hide too much rather than too little: a name that holds pass, pwd, secret, token, key, auth or credential
hides its whole value, also where it stands in the middle of a sentence, in YAML, or in JSON that is a string of other
JSON; `env_vars` are hidden whole; in a URL everything up to its `@` is. Of what is no text only the size is told. Left
readable are what AMQP itself calls a key, the routing keys: without them nobody sees which way a letter went, and
whoever puts a secret there has told the whole broker. Never raises, whatever the input.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

MASK = "***"
SHOWN_BYTES = 16_384
_DEEPEST = 40

_WORDS = "pass|pwd|secret|token|key|auth|credential"
_VARIABLES = r"env(?:iron)?|env(?:ironment)?[-_]?var(?:iable)?s?"
_SECRET_NAME = re.compile(rf"(?i){_WORDS}")
_ROUTING_KEY = re.compile(r"(?i)(?:^|[-_.])routing[-_]?keys?$")
_ENVIRONMENT = re.compile(rf"(?i)^(?:{_VARIABLES})$")
_OPTION_NAME = re.compile(rf"(?i)^--?[\w-]*?(?:{_WORDS})[\w-]*$")
# `{"name": "PASSWORD", "value": "x"}`: the one tells what the other is.
_NAMING = ("name", "key", "variable")

# Below, each pattern reads every character a bounded number of times (possessive, anchored at the beginning of a name):
# a body is as long and as odd as its sender likes.

# `//user:password@`, `//token@`. A password may hold an unescaped `/` or `@`: it ends at the last `@` before a blank.
_USERINFO = re.compile(r"(?<=://)(?:[^\s/?#'\"<>]*@|[^:@\s'\"/]*:(?:(?!://)[^\s'\"<>])*@)")
_BARE_NAME = (
    rf"(?<![\w.-]) (?: (?= [\w.-]*? (?: {_WORDS} ) ) | (?= (?: {_VARIABLES} ) (?! [\w.-] ) ) ) [\w.-]++"
)
# Quotes may be escaped, once for each string that the text was put into. One beside another goes on with it.
_QUOTED = r"""[bruf]{0,2} (?: \\*+ " (?: [^"\\] | \\. )*+ "? | \\*+ ' (?: [^'\\] | \\. )*+ '? )++"""
_IS = r"""\\*+ ["']? \s*+ [=:]{1,2} >? \s*+"""
# `password=x`, `"token": "x"`, `Authorization: Bearer x`, in text that is no JSON or within a string of it.
_SPOKEN = re.compile(
    rf"""(?ix) (?P<name> {_BARE_NAME} ) (?P<between> {_IS} )
    (?: (?: bearer | basic | digest ) \s++ )? (?: {_QUOTED} | [^\s,;&"'}}\])]++ )"""
)
# `--password x`, `"--password", "x"`.
_OPTION = re.compile(
    rf"""(?ix) (?<![\w.-]) (?P<name> --? (?= [\w-]*? (?: {_WORDS} ) ) [\w-]++ )
    (?P<between> \s++ | \\*+ ["'] \s*+ , \s*+ ) (?! - ) (?: {_QUOTED} | [^\s,;&"'}}\])]++ )"""
)
_PAIR = re.compile(
    rf"""(?ix) (?P<name> (?<![\w.-]) (?: {"|".join(_NAMING)} ) {_IS} \\*+ ["']? (?= [\w.-]*? (?: {_WORDS} ) ) [\w.-]++ )
    (?P<between> \\*+ ["']? ,? \s*+ \\*+ ["']? value {_IS} ) (?: {_QUOTED} | [^\n,}}]++ )"""
)
# A list, an object or a block that begins under such a name, in what is no whole JSON: from here on nobody can say
# where the secret ends. `\n` is the line break of a string.
_OPENED = re.compile(
    rf"""(?ix)
    (?: (?P<bare> {_BARE_NAME} | (?<![\w.-]) environment )
      | ["'] (?P<quoted> (?= [^"'\\]*? (?: {_WORDS} ) ) [^"'\\]*+ ) (?= [\\"'] ) )
    {_IS} (?P<opening> [\w.]*+ [\[{{(] | \\++ [nr] )"""
)
# A line of YAML or of headers: what is on the rest of it, and on lines that are indented further, belongs to the name.
_LINE = re.compile(
    rf"""(?ix) (?P<indent> [\s-]*+ ) (?P<name> ["']? (?: {_BARE_NAME} | environment (?= ["']? \s*+ : \s*+ $ ) ) ["']? )
    \s*+ : (?= \s | $ )"""
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


def masked_object(value: Mapping[str, object]) -> dict[str, object]:
    return cast("dict[str, object]", masked(value))


def masked_text(text: str) -> str:
    return _masked_text(text, 0)


def without_userinfo(text: str) -> str:
    """For a text of our own or of a driver, which may name an address and quotes nothing else."""
    return _USERINFO.sub(f"{MASK}@", text)


def masked_body(body: bytes, limit: int = SHOWN_BYTES) -> MaskedBody:
    shown, is_json = _shown(body)
    kept = _printable(shown).encode()[:limit].decode("utf-8", "ignore")
    return MaskedBody(text=kept, size=len(body), is_cut=len(kept) < len(_printable(shown)), is_json=is_json)


def _shown(body: bytes) -> tuple[str, bool]:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return _not_text(body), False
    # UTF-16 is UTF-8 too as long as it is plain: its words are readable between the zeros, and not for a pattern.
    if "\0" in text:
        return _not_text(body), False
    try:
        return json.dumps(masked(json.loads(text)), indent=2, ensure_ascii=False), True
    except (ValueError, RecursionError):
        return masked_text(text), False


def _not_text(body: bytes) -> str:
    return f"({len(body)} bytes that are no text in UTF-8; whoever has the role operate can read them raw)"


def _masked(value: object, depth: int) -> object:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return _masked_text(value, depth)
        case Mapping() if depth < _DEEPEST:
            is_pair = any(is_secret_key(str(value.get(name, ""))) for name in _NAMING)
            return {
                _printable(str(name)): MASK
                if is_pair and name == "value"
                else _of_name(str(name), one, depth)
                for name, one in value.items()
            }
        case list() | tuple() if depth < _DEEPEST:
            return [
                MASK if isinstance(before, str) and _OPTION_NAME.match(before) else _masked(one, depth + 1)
                for before, one in zip((None, *value), value, strict=False)
            ]
        case _:
            return MASK


def _of_name(name: str, value: object, depth: int) -> object:
    if value is None or isinstance(value, bool):
        return value  # says that there is one, and not which
    if is_secret_key(name) or _ENVIRONMENT.match(name):
        return MASK
    return _masked(value, depth + 1)


def _masked_text(text: str, depth: int) -> str:
    """JSON that was put into a string is masked as JSON, which knows where a secret ends."""
    text = _printable(text).replace("\0", "")
    if depth < _DEEPEST and text.lstrip()[:1] in ("{", "[", '"'):
        with suppress(ValueError, RecursionError):
            return json.dumps(_masked(json.loads(text), depth + 1), ensure_ascii=False)
    for opened in _OPENED.finditer(text):
        if not _ROUTING_KEY.search(opened["bare"] or opened["quoted"]):
            told = f"{MASK} (the rest is no whole JSON, so what is secret in it cannot be told)"
            return _masked_words(text[: opened.start("opening")]) + told
    return _masked_words(text)


def _masked_words(text: str) -> str:
    shown = _USERINFO.sub(f"{MASK}@", _without_blocks(text))
    for pattern in (_PAIR, _OPTION, _SPOKEN):
        shown = pattern.sub(_hidden, shown)
    return shown


def _without_blocks(text: str) -> str:
    kept: list[str] = []
    column: int | None = None  # of the name whose lines are hidden
    for line in text.splitlines(keepends=True):
        content = line.lstrip()
        indent = len(line) - len(content)
        # The items of a list may stand right under its name.
        if column is not None and (
            not content or indent > column or (indent == column and content.startswith("-"))
        ):
            continue
        column = None
        found = _LINE.match(line)
        if found is not None and not _ROUTING_KEY.search(found["name"].strip("\"'")):
            column = len(found["indent"])
            kept.append(f"{found[0].rstrip()} {MASK}\n")
        else:
            kept.append(line)
    # Nobody misses a line break at the end, and a text of one line has none.
    return "".join(kept) if text.endswith("\n") else "".join(kept).removesuffix("\n")


def _hidden(found: re.Match[str]) -> str:
    if _ROUTING_KEY.search(found["name"]):
        return found[0]
    return f"{found['name']}{found['between']}{MASK}"


def _printable(text: str) -> str:
    """A lone surrogate cannot be sent to anybody."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
