"""Which ends of Attune's own monitor are published, and how long the event of a workflow task waits."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.explain.records import Records
from dlq_handler.explain.story import Kind, story_of
from dlq_handler.host.ends import EndedTask, EndWithoutEvent, MonitorEnd, UnconsumedInterval
from dlq_handler.host.execution import TERMINAL, ExecutionStatus
from dlq_handler.timeouts.decide_unpublished import (
    LONGEST_RETRY_DELAY_SECONDS,
    LeaveEnd,
    PublishEnd,
    WaitToPublish,
    decide_unpublished,
    retry_delay_seconds,
    unpublished_text,
)
from tests.support.builders import NOON, an_execution

INTERVAL = UnconsumedInterval(
    began_at=NOON - timedelta(minutes=1), last_observed_at=NOON + timedelta(minutes=1)
)
FAILED = ExecutionStatus.FAILED


def a_task(**changes: Any) -> EndedTask:
    fields: dict[str, Any] = {
        "parent_status": "running",
        "is_retried": False,
        "is_advanced": False,
        "is_workflow_readable": True,
        "retry_count": 0,
        "max_retries": 0,
        "retry": None,
    }
    return EndedTask(**(fields | changes))


def an_end(
    task: EndedTask | None = None,
    *,
    status: ExecutionStatus = FAILED,
    interval: UnconsumedInterval | None = INTERVAL,
) -> MonitorEnd:
    execution = an_execution(status=status, is_workflow_task=task is not None)
    end = EndWithoutEvent(execution=execution, result={}, evidence=INTERVAL.evidence)
    return MonitorEnd(end=end, interval=interval, task=task)


def decide(one: MonitorEnd, *, quiet: float = 60, unacked: int | None = 0) -> object:
    return decide_unpublished(one, quiet_seconds=quiet, wanted_quiet_seconds=60, unacked=unacked)


def test_end_of_an_ordinary_execution_waits_for_the_quiet_time_alone() -> None:
    assert isinstance(decide(an_end(), quiet=59.9), WaitToPublish)
    assert decide(an_end(), unacked=9) == PublishEnd()
    assert decide(an_end(), unacked=None) == PublishEnd()


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ({"parent_status": None}, "its workflow does not exist"),
        ({"parent_status": "cancelled"}, "its workflow is cancelled"),
        ({"is_retried": True}, "its workflow has retried it"),
        ({"is_advanced": True}, "its workflow has continued"),
    ],
)
def test_end_that_the_host_knows_of_is_never_published(changes: dict[str, Any], known: str) -> None:
    one = an_end(a_task(**changes))
    assert decide(one, quiet=float("inf")) == LeaveEnd(known)
    assert known in unpublished_text(one)


def test_task_waits_while_consumers_hold_messages() -> None:
    assert isinstance(decide(an_end(a_task()), unacked=1), WaitToPublish)
    assert decide(an_end(a_task()), unacked=None) == PublishEnd()


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({"max_retries": 0, "retry": {"delay": 30}}, 0),
        ({"max_retries": None, "retry": {"delay": 30}}, 0),
        ({"max_retries": 2, "retry_count": 2, "retry": {"delay": 30}}, 0),
        ({"max_retries": 2, "retry": None}, 0),
        ({"max_retries": 2, "retry": {"delay": 30, "backoff": "Constant"}}, 30),
        ({"max_retries": 2, "retry_count": None, "retry": {"delay": 30}}, 30),
        ({"max_retries": 5, "retry_count": 2, "retry": {"delay": 30, "backoff": "Linear"}}, 90),
        ({"max_retries": 5, "retry_count": 2, "retry": {"delay": 30, "backoff": "Exponential"}}, 240),
        (
            {
                "max_retries": 5,
                "retry_count": 2,
                "retry": {"delay": 30, "backoff": "Exponential", "max_delay": 60},
            },
            60,
        ),
        ({"max_retries": 2, "retry": {"delay": 10**8}}, LONGEST_RETRY_DELAY_SECONDS),
        ({"max_retries": "many", "retry": {"delay": 30}}, 30),
    ],
)
def test_delay_of_a_retry_is_what_the_workflow_says(changes: dict[str, Any], seconds: float) -> None:
    task = a_task(**changes)
    assert retry_delay_seconds(FAILED, task) == seconds
    assert retry_delay_seconds(ExecutionStatus.ABANDONED, task) == 0, "Attune retries no abandoned task"


def test_task_waits_for_the_delay_of_its_retry() -> None:
    one = an_end(a_task(max_retries=2, retry={"delay": 30}))
    assert isinstance(decide(one, quiet=89.9), WaitToPublish)
    assert decide(one, quiet=90) == PublishEnd()


@pytest.mark.parametrize("status", [FAILED, ExecutionStatus.ABANDONED])
@pytest.mark.parametrize("max_retries", [0, 2])
def test_task_waits_while_workflows_cannot_be_read(status: ExecutionStatus, max_retries: int) -> None:
    """Whether its workflow has continued is unknown, with retries and without."""
    one = an_end(a_task(max_retries=max_retries, is_workflow_readable=False), status=status)
    assert isinstance(decide(one, quiet=float("inf")), WaitToPublish)
    assert "`dlq-handler grants`" in unpublished_text(one)


odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.dictionaries(
        st.sampled_from(["delay", "backoff", "max_delay", "count"]), inner, max_size=4
    ),
    max_leaves=4,
)
tasks = st.builds(
    EndedTask,
    parent_status=st.none() | st.sampled_from([status.value for status in ExecutionStatus]),
    is_retried=st.booleans(),
    is_advanced=st.booleans(),
    is_workflow_readable=st.booleans(),
    retry_count=odd,
    max_retries=odd,
    retry=odd,
)


@given(
    task=st.none() | tasks,
    status=st.sampled_from([FAILED, ExecutionStatus.ABANDONED]),
    quiet=st.floats(min_value=0, max_value=10_000),
    unacked=st.none() | st.integers(min_value=0, max_value=20),
)
def test_no_task_is_published_that_the_host_knows_of_or_may_just_be_retrying(
    task: EndedTask | None, status: ExecutionStatus, quiet: float, unacked: int | None
) -> None:
    decision = decide(an_end(task, status=status), quiet=quiet, unacked=unacked)
    if decision != PublishEnd():
        return
    assert quiet >= 60
    if task is not None:
        assert task.parent_status not in {None, *TERMINAL}
        assert not task.is_retried
        assert not task.is_advanced
        assert task.is_workflow_readable
        assert not unacked
        assert quiet >= 60 + retry_delay_seconds(status, task)


@given(task=st.none() | tasks)
def test_every_end_is_published_or_left_after_a_long_quiet_time_unless_workflows_cannot_be_read(
    task: EndedTask | None,
) -> None:
    decision = decide(an_end(task), quiet=60 + LONGEST_RETRY_DELAY_SECONDS)
    assert not isinstance(decision, WaitToPublish) or (task is not None and not task.is_workflow_readable)


def test_story_says_what_becomes_of_the_event() -> None:
    records = Records(execution=None, unpublished=an_end(), now=NOON)
    [moment] = story_of(records)
    assert moment.kind is Kind.UNCONFIRMED
    assert moment.evidence == INTERVAL.evidence
    assert "while the queue had no consumer; dlq-handler publishes it when attune" in moment.text
    slot = unpublished_text(an_end(a_task(), interval=None))
    assert "it still holds its slot; dlq-handler publishes it when it has held its slot for" in slot
