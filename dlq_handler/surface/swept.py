"""What a link to a letter or a group says after its retention: that it was here, and when it went."""

from datetime import UTC, datetime

from dlq_handler.domain.seconds import in_units
from dlq_handler.services.retention import RetentionPolicy


def swept_sentence(letter_id: int, swept_at: datetime, kept: RetentionPolicy) -> str:
    """Both times: nothing tells any more whether it was ever resolved."""
    resolved, unresolved = in_units(kept.resolved_seconds), in_units(kept.unresolved_seconds)
    return (
        f"Letter {letter_id} was swept on {_minute(swept_at)} (retention {resolved}; {unresolved} for one that was "
        "never resolved)."
    )


def swept_group_sentence(group_id: str, swept_at: datetime, kept: RetentionPolicy) -> str:
    longest = in_units(kept.longest_seconds)
    return f"Group {group_id} was swept on {_minute(swept_at)} (retention {longest} after its last letter)."


def _minute(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}Z"
