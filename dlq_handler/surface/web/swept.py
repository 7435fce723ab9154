"""What a link to a letter says after its retention: that it was here, and when it went."""

from datetime import UTC, datetime

from dlq_handler.domain.seconds import in_units


def swept_sentence(letter_id: int, swept_at: datetime, *, retention_seconds: float) -> str:
    when = f"{swept_at.astimezone(UTC):%Y-%m-%d %H:%M}Z"
    return f"Letter {letter_id} was swept on {when} (retention {in_units(retention_seconds)})."
