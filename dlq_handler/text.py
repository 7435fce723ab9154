"""Values out of messages made storable in PostgreSQL, and durations as people read them."""

# PostgreSQL's bigint. A message can hold any number; one beyond this range cannot be stored.
INT64 = range(-(2**63), 2**63)


def int64_or_none(value: object) -> int | None:
    """The integer itself; None for a number out of range and for every other type."""
    # bool is an int to Python: True would be execution 1.
    return value if isinstance(value, int) and not isinstance(value, bool) and value in INT64 else None


def storable(text: str) -> str:
    """The same text with NUL and lone surrogates written out as visible escapes: PostgreSQL refuses both."""
    if "\x00" in text:
        text = text.replace("\x00", "\\u0000")
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


def rounded(seconds: float | None) -> float | None:
    """To a tenth of a second. None: unknown."""
    return None if seconds is None else round(seconds, 1)


def in_units(seconds: float) -> str:
    """`45 s`, `3 min`, `2 h`, `4 d`: rounded."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
