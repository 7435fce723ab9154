"""What a link says after the retention of what it leads to: that it was here, and when it went."""

from datetime import UTC, datetime

from dlq_handler.domain.letter_filter import CameBefore
from dlq_handler.domain.seconds import in_units
from dlq_handler.services.retention import RetentionPolicy


def swept_sentence(letter_id: int, swept_at: datetime, kept: RetentionPolicy) -> str:
    """Both times: nothing tells any more whether it was ever resolved."""
    return f"Letter {letter_id} was swept on {_minute(swept_at)} ({_retention(kept)})."


def swept_group_sentence(group_id: str, swept_at: datetime, kept: RetentionPolicy) -> str:
    longest = in_units(kept.longest_seconds)
    return f"Group {group_id} was swept on {_minute(swept_at)} (retention {longest} after its last letter)."


def swept_execution_sentence(execution_id: int, swept_at: datetime, kept: RetentionPolicy) -> str:
    return (
        f"What was on record about execution {execution_id} was swept on {_minute(swept_at)} ({_retention(kept)}), and "
        "the host has no such execution any more."
    )


def swept_worker_sentence(worker_id: int, swept_at: datetime, kept: RetentionPolicy) -> str:
    return (
        f"Worker {worker_id} is not registered any more, and what was on record of it was swept on {_minute(swept_at)} "
        f"(retention {in_units(kept.history_seconds)})."
    )


def nothing_on_record_sentence(came: CameBefore, now: datetime, kept: RetentionPolicy) -> str:
    """For a record that had letters once: that it waits for the first one would be untrue."""
    if came.last_at is not None:
        ago = in_units(max(0.0, (now - came.last_at).total_seconds()))
        went = f"The last one came on {_minute(came.last_at)}, {ago} ago, and was swept"
    elif came.swept_at is not None:
        went = f"The last one was swept on {_minute(came.swept_at)}"
    else:
        went = "Those that came were swept so long ago that nobody remembers when"
    return f"No letter is on record. {went} ({_retention(kept)})."


def _retention(kept: RetentionPolicy) -> str:
    resolved, unresolved = in_units(kept.resolved_seconds), in_units(kept.unresolved_seconds)
    return f"retention {resolved}; {unresolved} for one that was never resolved"


def _minute(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}Z"
