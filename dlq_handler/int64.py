"""Numbers that fit PostgreSQL's bigint. A message can hold any number; one beyond this range cannot be stored."""

INT64 = range(-(2**63), 2**63)


def int64_or_none(value: object) -> int | None:
    """The integer itself; None for a number out of range and for every other type."""
    # bool is an int to Python: True would be execution 1.
    return value if isinstance(value, int) and not isinstance(value, bool) and value in INT64 else None
