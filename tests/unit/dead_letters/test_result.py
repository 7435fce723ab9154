"""The `result` of a failed execution is read by users of Attune: it speaks of their execution, not of our evidence."""

import pytest

from dlq_handler.dead_letters.decide import decide_dead_letter
from dlq_handler.dead_letters.decision import Fail
from dlq_handler.dead_letters.failure_result import failure_result
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.worker import Worker
from tests.support.builders import NOON, a_dead_letter, a_death, an_execution, circumstances


def message_of(status: str, *, reason: str = "expired", **letter: object) -> str:
    execution = an_execution(status=ExecutionStatus(status), worker_id=7)
    dead = a_dead_letter(worker_id=7, death=a_death(reason=reason), **letter)
    silent = {7: Worker(id=7, heartbeat_age_seconds=120)}
    decision = decide_dead_letter(dead, execution, silent, circumstances(link_age_seconds=1000))
    assert isinstance(decision, Fail)
    return str(failure_result(dead, execution, decision, NOON)["message"])


@pytest.mark.parametrize(
    "attempt_updated_at", [an_execution().updated, None], ids=["with a stamp", "without a stamp"]
)
def test_the_message_of_a_scheduled_execution_says_only_what_became_of_its_dispatch(
    attempt_updated_at: object,
) -> None:
    assert message_of("scheduled", attempt_updated_at=attempt_updated_at) == (
        "No worker took the dispatch before it expired in the worker's queue."
    )


def test_the_message_of_a_running_execution_says_what_is_known_of_its_worker() -> None:
    assert message_of("running", reason="rejected") == (
        "The dispatch was rejected by the consumer of the worker's queue; "
        "running on worker 7, whose last heartbeat is 120 s old."
    )
