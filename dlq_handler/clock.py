"""The process clock. Only for intervals: what decides over executions is the database's clock, read with the rows."""

import time


def monotonic_seconds() -> float:
    return time.monotonic()
