"""What a link to a letter or a group says after its retention: that it was here, and when it went."""

from datetime import UTC, datetime

from dlq_handler.domain.seconds import in_units


def swept_sentence(letter_id: int, swept_at: datetime, *, retention_seconds: float) -> str:
    return f"Letter {letter_id} was swept on {_minute(swept_at)} (retention {in_units(retention_seconds)})."


def swept_group_sentence(group_id: str, swept_at: datetime, *, retention_seconds: float) -> str:
    kept = in_units(retention_seconds)
    return f"Group {group_id} was swept on {_minute(swept_at)} (retention {kept} after its last letter)."


def _minute(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}Z"
