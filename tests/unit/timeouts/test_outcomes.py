"""What follows from the outcome of a decision about a stale execution."""

import pytest

from dlq_handler.host.execution import TRANSITIONS, ExecutionStatus
from dlq_handler.timeouts.decision import ENDS, REPEATABLE, RESOLVED, REVERTIBLE, End, StaleOutcome


def test_lists_for_statements() -> None:
    assert set(ENDS) == {"failed", "abandoned", "cancelled"}
    assert set(RESOLVED) == {"failed", "abandoned", "cancelled"}
    assert set(REPEATABLE) == {"update_failed", "request_republished"}
    assert set(REVERTIBLE) == {"failed", "abandoned"}


@pytest.mark.parametrize("outcome", [one for one in StaleOutcome if one.is_end])
def test_an_end_and_its_status_belong_together(outcome: StaleOutcome) -> None:
    assert outcome.becomes is not None
    assert outcome.becomes.is_terminal
    assert End(outcome.becomes, "", {}, 1.0).outcome is outcome
    assert all(outcome.becomes in TRANSITIONS[status] for status in outcome.original_statuses)


@pytest.mark.parametrize("status", TRANSITIONS)
def test_the_metric_counts_one_end_and_refusals_of_each_status(status: ExecutionStatus) -> None:
    [end, refused] = [one for one in StaleOutcome if status in one.original_statuses]
    assert end.is_end
    assert refused is StaleOutcome.UPDATE_FAILED
