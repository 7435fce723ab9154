"""Read the death headers of a letter. Anybody may publish to the exchange, so a header may be of any type."""

from collections.abc import Mapping
from datetime import UTC, datetime

from dlq_handler.dead_letters.letter import UNKNOWN_REASON, Death
from dlq_handler.text import int64_or_none, storable


def newest_death(headers: Mapping[str, object]) -> Death | None:
    """The death that brought the letter here: the one x-last-death-* names, else the newest by time, else the first."""
    deaths = _deaths(headers.get("x-death"))
    last_queue, last_reason = (
        _text(headers.get("x-last-death-queue")),
        _text(headers.get("x-last-death-reason")),
    )
    if last_queue is not None:
        for death in deaths:
            if death.queue == last_queue and last_reason in (None, death.reason):
                return death
        return Death(
            queue=last_queue,
            reason=last_reason or UNKNOWN_REASON,
            time=None,
            count=1,
            exchange=_text(headers.get("x-last-death-exchange")),
        )
    if deaths:
        # Position alone is not enough: another broker, or a shovel, may append instead of prepend.
        # max() keeps the first of equals, and the broker puts the newest first.
        return max(deaths, key=lambda death: death.time or datetime.min.replace(tzinfo=UTC))
    first = first_death_queue(headers)
    if first is None:
        return None
    reason = _text(headers.get("x-first-death-reason")) or UNKNOWN_REASON
    return Death(queue=first, reason=reason, time=None, count=1)


def first_death_queue(headers: Mapping[str, object]) -> str | None:
    named = _text(headers.get("x-first-death-queue"))
    if named is not None:
        return named
    deaths = _deaths(headers.get("x-death"))
    return deaths[-1].queue if deaths else None


def _deaths(value: object) -> list[Death]:
    if not isinstance(value, list):
        return []
    return [_death(entry) for entry in value if isinstance(entry, Mapping)]


def _death(entry: Mapping[str, object]) -> Death:
    count = int64_or_none(entry.get("count"))
    return Death(
        queue=_text(entry.get("queue")),
        reason=_text(entry.get("reason")) or UNKNOWN_REASON,
        time=_moment(entry.get("time")),
        count=1 if count is None or count < 0 else count,
        exchange=_text(entry.get("exchange")),
    )


def _moment(value: object) -> datetime | None:
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    return storable(value)[:500] if isinstance(value, str) and value else None
