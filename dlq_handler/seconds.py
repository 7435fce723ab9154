"""A number of seconds as it goes on record, and as people read it."""


def rounded(seconds: float | None) -> float | None:
    """To a tenth, as nobody asks for more afterwards. None: unknown, and stays so."""
    return None if seconds is None else round(seconds, 1)


def in_units(seconds: float) -> str:
    """`45 s`, `3 min`, `2 h`, `4 d`: rounded, as nobody reads an age to the second."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
