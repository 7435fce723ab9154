"""Times as commands print them: UTC with a Z, and on a terminal how long ago, by the clock of whoever was asked."""

from datetime import UTC, datetime

from dlq_handler.domain.seconds import in_units

# What two clocks may differ by: less than this ahead is not in the future.
_SLACK_SECONDS = 5.0


def utc(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def with_age(when: datetime, now: datetime) -> str:
    """`2026-03-01T02:26:00Z (32 min ago)`, or `(in 2 h)`."""
    seconds = (now - when).total_seconds()
    age = f"in {in_units(-seconds)}" if seconds <= -_SLACK_SECONDS else f"{in_units(max(0.0, seconds))} ago"
    return f"{utc(when)} ({age})"
