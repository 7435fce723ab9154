"""What goes on record about a batch, given what was really changed."""

from datetime import timedelta

import pytest

from dlq_handler.dead_letters.decide import LetterProposal, decide_batch
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.record import entries_of
from dlq_handler.endings.recording import retry_delay
from tests.support.builders import COMPLETIONS, NOON, a_dead_letter, an_execution, circumstances


def proposals_of(*letters: tuple[str, int]) -> list[LetterProposal]:
    return decide_batch(
        [a_dead_letter(key=key, execution_id=execution_id) for key, execution_id in letters],
        executions={1: an_execution(id=1), 2: an_execution(id=2)},
        workers={},
        circumstances=circumstances(),
        destination=COMPLETIONS,
        now=NOON,
    )


def test_outcome_is_the_decisions_when_the_change_was_made() -> None:
    entries = entries_of(proposals_of(("a", 1), ("b", 1)), ended={1}, now=NOON)
    assert [entry.outcome for entry in entries] == [Outcome.FAILED, Outcome.ALREADY_TERMINAL]
    assert [entry.next_attempt_at for entry in entries] == [None, None]


def test_no_proposal_about_an_execution_holds_when_its_change_missed() -> None:
    entries = entries_of(proposals_of(("a", 1), ("b", 1), ("c", 2)), ended={2}, now=NOON, attempts_before=2)
    assert [entry.outcome for entry in entries] == [
        Outcome.UPDATE_FAILED,
        Outcome.UPDATE_FAILED,
        Outcome.FAILED,
    ]
    assert (entries[0].attempts, entries[0].next_attempt_at) == (3, NOON + timedelta(minutes=4))


@pytest.mark.parametrize(
    ("attempts", "minutes"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (8, 60), (10**9, 60), (0, 1)]
)
def test_pause_doubles_from_a_minute_to_an_hour(attempts: int, minutes: int) -> None:
    assert retry_delay(attempts) == timedelta(minutes=minutes)
