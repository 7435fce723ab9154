"""Take passwords out of text. Scheme, user and host stay, so that one still sees which server is meant.

Promises to hide too much rather than too little: where a URL is odd, everything up to its last `@` goes.
Never raises and never needs the text to be a well-formed URL.
"""

import re
from functools import lru_cache

MASK = "***"

# The password of `scheme://user:password@host`. It may hold an unescaped `@`, `/`, `:` or blank, so it ends
# at the LAST `@`: stopping at the first one would print the rest of the password as a host.
_USERINFO_IN_URL = re.compile(r"(?<=://)([^:@]*):.*@", re.DOTALL)
# The same inside running text, which may go on with another URL; a blank or a quote ends the first one.
_USERINFO_IN_TEXT = re.compile(r"(?<=://)([^:@\s'\"]*):(?:(?!://)[^\s'\"<>])*@")
# `?password=...` in a URL and `password=... host=...` in a libpq keyword string, quoted or not.
_KEYWORD = re.compile(r"(?i)\b((?:ssl)?password|passwd|pwd)(\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&'\"]+)")

_SECRET_NAME = re.compile(r"(?i)(?:^|_)(?:password|passwd|pwd|secret|token|authorization|credentials?)$")


def redact_url(url: str) -> str:
    """`url` is one URL or libpq string and nothing else."""
    return _KEYWORD.sub(rf"\1\2{MASK}", _USERINFO_IN_URL.sub(rf"\1:{MASK}@", url))


def redact_text(text: str) -> str:
    """`text` is any sentence that may hold URLs."""
    if "://" not in text and "=" not in text:  # nearly every log value: no regular expression for it
        return text
    return _KEYWORD.sub(rf"\1\2{MASK}", _USERINFO_IN_TEXT.sub(rf"\1:{MASK}@", text))


@lru_cache(maxsize=1024)  # asked for every value of every log line; the names are few
def is_secret_name(name: str) -> bool:
    """Whether a value under this name is a secret whatever it looks like."""
    return _SECRET_NAME.search(name) is not None
