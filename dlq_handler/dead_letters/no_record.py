"""What commands, API and pages answer when there is no record.

Nothing remembers the records that retention deleted, so the answer says how long records are kept.
"""

from datetime import UTC, datetime

from dlq_handler.dead_letters.filter import CameBefore
from dlq_handler.history.options import RetentionPolicy
from dlq_handler.text import in_units


def no_record_sentence(kept_seconds: float) -> str:
    """`kept_seconds`: the retention of the kind of record that was asked for."""
    return f"No such record. Records are kept for {in_units(kept_seconds)}; it may have been deleted."


def no_letters_sentence(came: CameBefore, now: datetime, kept: RetentionPolicy) -> str:
    """For a list that is empty although dead letters arrived once: "waiting for the first one" would be untrue."""
    resolved, unresolved = in_units(kept.resolved_seconds), in_units(kept.unresolved_seconds)
    last = ""
    if came.last_at is not None:
        ago = in_units(max(0.0, (now - came.last_at).total_seconds()))
        last = f" The last one arrived on {came.last_at.astimezone(UTC):%Y-%m-%d %H:%M}Z, {ago} ago."
    return (
        f"No dead letter is on record.{last} Resolved ones are kept for {resolved}, others for {unresolved}."
    )
