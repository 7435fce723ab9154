"""When a queue may be emptied, and what its messages look like as letters."""

from datetime import timedelta

import pytest

from dlq_handler.dead_letters.decide import decide_batch
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.drain import why_not_drain
from dlq_handler.dead_letters.letter import DrainedFrom
from dlq_handler.dead_letters.rescued import as_drained
from dlq_handler.host.worker import Worker
from tests.support.builders import COMPLETIONS, NOON, a_dead_letter, an_execution, circumstances

GONE = Worker(id=7, heartbeat_age_seconds=600, last_heartbeat=NOON)
QUEUE = "worker.7.executions"
DRAINED_FROM = DrainedFrom(worker_id=7, heartbeat_age_seconds=600, other_consumers=0)
LATER = NOON + timedelta(minutes=1)


@pytest.mark.parametrize(
    ("found", "other_consumers", "explanation"),
    [
        (GONE, 0, None),
        (GONE, 1, "its queue has a consumer"),
        (Worker(id=7, heartbeat_age_seconds=500, last_heartbeat=LATER), 0, "it has sent a heartbeat"),
        (Worker(id=7, heartbeat_age_seconds=None, last_heartbeat=None), 0, "it has sent a heartbeat"),
        (None, 0, "its row was deleted"),
    ],
)
def test_queue_is_drained_only_if_its_worker_is_still_unavailable(
    found: Worker | None, other_consumers: int, explanation: str | None
) -> None:
    assert why_not_drain(GONE, found, other_consumers=other_consumers) == explanation


def test_worker_that_never_reported_is_not_unavailable() -> None:
    never = Worker(id=7, heartbeat_age_seconds=None, last_heartbeat=None)

    assert why_not_drain(never, never, other_consumers=0) is not None


def test_message_becomes_a_letter_that_was_drained() -> None:
    message = a_dead_letter(death=None, first_death_queue=None, worker_id=None)

    letter = as_drained(message, DRAINED_FROM, queue=QUEUE, now=LATER)

    assert (letter.reason, letter.queue, letter.died_at, letter.first_death_queue) == (
        "rescued",
        QUEUE,
        LATER,
        QUEUE,
    )
    assert letter.execution_id == message.execution_id


def test_same_message_is_the_same_letter_whenever_it_is_taken() -> None:
    message = a_dead_letter(death=None)

    first = as_drained(message, DRAINED_FROM, queue=QUEUE, now=NOON)
    again = as_drained(message, DRAINED_FROM, queue=QUEUE, now=LATER)

    assert first.key == again.key
    assert first.key != message.key
    assert (
        first.key != as_drained(a_dead_letter(key="k2", death=None), DRAINED_FROM, queue=QUEUE, now=NOON).key
    )
    assert first.key != as_drained(message, DRAINED_FROM, queue="worker.8.executions", now=NOON).key


@pytest.mark.parametrize("attempt_updated_at", [NOON, None])
def test_drained_letter_of_the_current_attempt_fails_it_with_evidence(attempt_updated_at: object) -> None:
    letter = as_drained(
        a_dead_letter(death=None, attempt_updated_at=attempt_updated_at, worker_id=None),
        DRAINED_FROM,
        queue=QUEUE,
        now=LATER,
    )

    [proposal] = decide_batch(
        [letter],
        executions={1: an_execution()},
        workers={},
        circumstances=circumstances(),
        destination=COMPLETIONS,
        now=LATER,
    )

    assert proposal.decision.outcome is Outcome.FAILED
    assert proposal.change is not None
    assert proposal.change.result["error"] == "Worker unavailable"
    assert proposal.evidence["drained_from"] == {
        "worker": 7,
        "heartbeat_age_seconds": 600,
        "other_consumers": 0,
    }
    assert "x_death" not in proposal.evidence
