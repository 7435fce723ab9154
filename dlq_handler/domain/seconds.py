"""How a number of seconds goes on record: to a tenth, as nobody asks for more afterwards."""


def rounded(seconds: float | None) -> float | None:
    """None: unknown, and stays so."""
    return None if seconds is None else round(seconds, 1)
