"""When to try again what the database refused: one minute, doubling to an hour."""

from datetime import datetime, timedelta

FIRST_DELAY = timedelta(minutes=1)
MOST_DELAY = timedelta(hours=1)


def retry_delay(attempts: int) -> timedelta:
    """The pause after the `attempts`-th refusal; the first is 1."""
    # 64 minutes are past the hour already; without the inner limit a large count would overflow.
    return min(FIRST_DELAY * (1 << min(max(attempts - 1, 0), 6)), MOST_DELAY)


def next_attempt(now: datetime, attempts: int) -> datetime:
    return now + retry_delay(attempts)
