"""Executions that a worker reverted after their end, and the ids of missing completion events."""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.dead_letters.decision import FAILED_BY
from dlq_handler.endings.options import RecordOptions
from dlq_handler.host.ends import EndWithoutEvent, OwnEnd
from dlq_handler.host.execution import TERMINAL, ExecutionStatus
from dlq_handler.host.messages import ending
from dlq_handler.timeouts.findings import (
    ReconcileFinding,
    event_of,
    is_long_past,
    is_reverted,
    published_record,
    reverted_record,
)
from tests.support.builders import COMPLETIONS, NOON, an_execution

LATER = NOON + timedelta(minutes=1)
OPTIONS = RecordOptions(replica="two", destination=COMPLETIONS)


def an_end(
    status: ExecutionStatus, *, updated: datetime = LATER, signature: str | None = None, **changes: Any
) -> OwnEnd:
    fields: dict[str, Any] = {
        "ended_at": NOON,
        "ended_by": "letter 12",
        "replica": "one",
        "execution": an_execution(status=status, updated=updated),
        "signature": signature,
        "heartbeat_age_seconds": 3.21,
    }
    return OwnEnd(**(fields | changes))


@pytest.mark.parametrize(
    ("end", "is_back"),
    [
        (an_end(ExecutionStatus.RUNNING), True),
        (an_end(ExecutionStatus.RUNNING, updated=NOON - timedelta(seconds=1)), True),
        (an_end(ExecutionStatus.CANCELING), True),
        (an_end(ExecutionStatus.COMPLETED), True),
        (an_end(ExecutionStatus.FAILED), True),
        (an_end(ExecutionStatus.ABANDONED, signature="execution_timeout_monitor"), True),
        (an_end(ExecutionStatus.FAILED, signature=FAILED_BY), False),
        (an_end(ExecutionStatus.COMPLETED, updated=NOON), False),
        (an_end(ExecutionStatus.REQUESTED), False),
        (an_end(ExecutionStatus.SCHEDULED), False),
    ],
    ids=[
        "runs",
        "runs, in a transaction that waited for ours",
        "is being cancelled",
        "finished by a late worker",
        "failed by a late worker",
        "brought back, then abandoned by the host",
        "as we left it, its worker deleted since",
        "not moved",
        "requested again",
        "dispatched anew",
    ],
)
def test_execution_was_reverted_only_if_a_worker_continued_it(end: OwnEnd, is_back: bool) -> None:
    assert is_reverted(end) is is_back


def test_resurrection_is_one_per_ending_and_says_who_did_what() -> None:
    runs = reverted_record(an_end(ExecutionStatus.RUNNING), options=OPTIONS, now=LATER)
    done = reverted_record(an_end(ExecutionStatus.COMPLETED), options=OPTIONS, now=LATER)
    assert runs.attempt_updated_at == done.attempt_updated_at == NOON
    assert "worker 7" in runs.explanation
    assert "letter 12" in runs.explanation
    assert runs.evidence["ended_by_replica"] == "one"
    assert runs.evidence["heartbeat_age_seconds"] == 3.2


def an_unheard_end(status: ExecutionStatus = ExecutionStatus.FAILED, **changes: Any) -> EndWithoutEvent:
    execution = an_execution(status=status, **changes)
    return EndWithoutEvent(execution=execution, result={"error": "x"}, evidence={})


def test_end_is_announced_as_the_row_has_it() -> None:
    envelope = json.loads(event_of(an_unheard_end(), destination=COMPLETIONS, now=LATER).body)
    assert envelope["message_type"] == "ExecutionCompleted"
    assert envelope["payload"]["status"] == "Failed"
    assert envelope["payload"]["result"] == {"error": "x"}
    record = published_record(an_unheard_end(), ReconcileFinding.MISSING_EVENT, options=OPTIONS, now=LATER)
    assert record.evidence == {"finding": "missing_event"}


@pytest.mark.parametrize(
    ("expired_at", "is_long"),
    [
        ("2026-11-16T11:59:59Z", True),
        ("2026-11-16T14:00:01+02:00", False),
        ("2026-11-16T11:59:59", False),
        ("never", False),
        (None, False),
    ],
)
def test_missing_event_is_as_old_as_its_result_says(expired_at: str | None, is_long: bool) -> None:
    end = replace(an_unheard_end(), evidence={"expired_at": expired_at})
    assert is_long_past(end, since=NOON) is is_long


moments = st.datetimes(min_value=datetime(2020, 1, 1), max_value=datetime(2040, 1, 1)).map(  # noqa: DTZ001  # given one below
    lambda moment: moment.replace(tzinfo=NOON.tzinfo)
)


@given(status=st.sampled_from(sorted(TERMINAL)), replaced=moments, wrote=moments)
def test_event_of_never_has_the_id_of_our_own_completion_event(
    status: ExecutionStatus, replaced: datetime, wrote: datetime
) -> None:
    """Our completion event is named for the state that was replaced, this one for the state that was left."""
    end = ending(
        an_execution(updated=replaced), ExecutionStatus.FAILED, {}, destination=COMPLETIONS, now=wrote
    )
    published = event_of(an_unheard_end(status, updated=wrote), destination=COMPLETIONS, now=LATER)
    again = event_of(
        an_unheard_end(status, updated=wrote), destination=COMPLETIONS, now=LATER + timedelta(hours=1)
    )
    assert published.message_id == again.message_id
    assert (published.message_id == end.message.message_id) is (replaced == wrote)
