"""What is on record of one execution, for tests: requested at noon, dispatched to worker 7 a second later, expired
there after five minutes.
"""

from datetime import datetime, timedelta
from typing import Any

from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.listing import LetterRecord
from dlq_handler.explain.records import OutboxRecord
from dlq_handler.timeouts.decision import StaleOutcome, StaleRecord
from tests.support.builders import MESSAGE_ID, NOON


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def a_letter_record(outcome: Outcome = Outcome.FAILED, **changes: Any) -> LetterRecord:
    fields: dict[str, Any] = dict.fromkeys(LetterRecord.__dataclass_fields__)
    fields |= {
        "id": 12,
        "execution_id": 1,
        "worker_id": 7,
        "queue": "worker.7.executions",
        "first_death_queue": "worker.7.executions",
        "exchange": "attune.dlx",
        "reason": "expired",
        "died_at": after(301),
        "attempt_updated_at": after(1),
        "outcome": outcome,
        "explanation": "its dispatch died",
        "attempts": 0,
        "repeats": 0,
        "received_at": after(302),
        "decided_at": after(302),
        "replica": "one",
        "evidence": {"status": "scheduled", "x_death": {"count": 1}},
        "is_shadow": False,
    }
    return LetterRecord(**(fields | changes))


def a_stale_record(outcome: StaleOutcome, **changes: Any) -> StaleRecord:
    fields: dict[str, Any] = {
        "execution_id": 1,
        "attempt_updated_at": after(1),
        "original_status": "running",
        "outcome": outcome,
        "worker_id": 7,
        "explanation": "because",
        "decided_at": after(302),
        "replica": "two",
    }
    return StaleRecord(**(fields | changes))


def an_outbox_record(**changes: Any) -> OutboxRecord:
    fields: dict[str, Any] = {
        "message_id": MESSAGE_ID,
        "routing_key": "execution.completed",
        "created_at": after(302),
        "attempts": 1,
        "confirmed_at": after(303),
        "next_attempt_at": after(302),
        "lease_holder": None,
        "lease_until": None,
        "problem": None,
        "last_error": None,
    }
    return OutboxRecord(**(fields | changes))
