"""A batch is decided in order; what is written and announced follows from the rows as they were read."""

import json
from datetime import timedelta
from uuid import UUID

import pytest

from dlq_handler.dead_letters.decide import LetterProposal, decide_batch, executions_found
from dlq_handler.dead_letters.decision import Keep, LeaveAlone, Outcome
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.messages import completion_id
from tests.support.builders import (
    COMPLETIONS,
    MESSAGE_ID,
    NOON,
    a_dead_letter,
    a_death,
    an_execution,
    circumstances,
)

LATER = NOON + timedelta(minutes=6)


def test_second_letter_of_an_execution_sees_the_effect_of_the_first() -> None:
    letters = [a_dead_letter(key="a"), a_dead_letter(key="b")]
    proposals = decide_batch(
        letters,
        executions={1: an_execution()},
        workers={},
        circumstances=circumstances(),
        destination=COMPLETIONS,
        now=LATER,
    )
    assert [proposal.decision.outcome for proposal in proposals] == [Outcome.FAILED, Outcome.ALREADY_TERMINAL]
    assert [proposal.change is not None for proposal in proposals] == [True, False]


def the_failure(**letter: object) -> tuple[dict[str, object], dict[str, object]]:
    [proposal] = decide_batch(
        [a_dead_letter(**letter)],
        executions={1: an_execution()},
        workers={},
        circumstances=circumstances(),
        destination=COMPLETIONS,
        now=LATER,
    )
    assert proposal.change
    return proposal.change.result, json.loads(proposal.change.message.body)


def test_expired_letter_fails_with_the_words_of_attune() -> None:
    result, _ = the_failure()
    assert result["error"] == "Worker queue TTL expired"
    assert result["expired_at"] == "2026-11-16T12:05:00.123456+00:00"
    assert result["failed_by"] == "dlq_handler"
    assert (result["reason"], result["queue"], result["worker_id"]) == ("expired", "worker.7.executions", 7)
    assert result["attempt"] == NOON.isoformat()


@pytest.mark.parametrize("reason", ["rejected", "maxlen", "delivery_limit", "none", "something new"])
def test_other_reasons_never_claim_an_expiry(reason: str) -> None:
    result, _ = the_failure(death=a_death(reason=reason))
    assert "TTL" not in str(result["error"])
    assert "expired_at" not in result
    assert result["reason"] == reason


def test_completion_event_is_attunes_envelope() -> None:
    result, envelope = the_failure()
    assert envelope["message_type"] == "ExecutionCompleted"
    assert envelope["message_id"] == str(completion_id(1, NOON))
    assert envelope["correlation_id"] == MESSAGE_ID
    assert envelope["timestamp"] == "2026-11-16T12:06:00.123456Z"
    assert envelope["payload"] == {
        "execution_id": 1,
        "action_id": 3,
        "action_ref": "core.echo",
        "status": "Failed",
        "result": result,
        "completed_at": "2026-11-16T12:06:00.123456Z",
    }


def test_unknown_action_is_announced_as_zero() -> None:
    [proposal] = decide_batch(
        [a_dead_letter()],
        executions={1: an_execution(action_id=None)},
        workers={},
        circumstances=circumstances(),
        destination=COMPLETIONS,
        now=LATER,
    )
    assert proposal.change
    assert json.loads(proposal.change.message.body)["payload"]["action_id"] == 0


def test_correlation_that_is_no_uuid_becomes_the_message_id() -> None:
    _, envelope = the_failure(correlation_id="order 66")
    assert envelope["correlation_id"] == envelope["message_id"]


def test_completion_id_is_the_same_for_a_repeat_and_another_for_another_attempt() -> None:
    assert completion_id(1, NOON) == completion_id(1, NOON)
    assert completion_id(1, NOON) != completion_id(1, NOON + timedelta(microseconds=1))
    assert completion_id(1, NOON) != completion_id(2, NOON)
    # Frozen: a consumer that remembers ids across our releases must still recognise a repeat.
    assert completion_id(1, NOON) == UUID("8a0dd852-e8fb-5539-9414-9c1a89472fe9")


def test_running_execution_keeps_its_status_in_the_result() -> None:
    [proposal] = decide_batch(
        [a_dead_letter()],
        executions={1: an_execution(status=ExecutionStatus.RUNNING)},
        workers={},
        circumstances=circumstances(),
        destination=COMPLETIONS,
        now=LATER,
    )
    assert proposal.change
    assert proposal.change.result["original_status"] == "running"


def a_proposal(execution_id: int | None, outcome: Outcome) -> LetterProposal:
    decision = LeaveAlone(outcome, "test") if outcome.is_resolved else Keep(outcome, "test")
    return LetterProposal(letter=a_dead_letter(execution_id=execution_id), decision=decision)


@pytest.mark.parametrize("outcome", [Outcome.UNREADABLE, Outcome.UNRELATED])
def test_no_execution_is_looked_up_for_an_unreadable_or_unrelated_letter(outcome: Outcome) -> None:
    assert executions_found([a_proposal(1, outcome), a_proposal(None, outcome)]) == []


def test_each_execution_that_was_looked_up_exists_or_is_unknown() -> None:
    proposals = [a_proposal(1, Outcome.UNKNOWN_EXECUTION), a_proposal(2, Outcome.ALREADY_TERMINAL)]
    assert executions_found(proposals) == [(1, False), (2, True)]
