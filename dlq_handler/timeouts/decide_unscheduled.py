"""Decide about an execution that was requested and has not been scheduled. Pure and total: no I/O, no clock.

Nothing was dispatched yet, so no message of it can die. Either it waits lawfully (in the line of its action, for the
time of its retry), or its request was lost: a scheduler that meets an error drops the message. Without a worker it also
puts the row back, which makes a new state of the row. To request it again is harmless, because a scheduler claims an
execution once. So when unsure it waits. Then its request is published again, with growing pauses and a limit per
execution. It ends only where the operator wants that.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from dlq_handler.dead_letters.parse import read_time
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.unscheduled import Unscheduled
from dlq_handler.text import rounded
from dlq_handler.timeouts.decision import AnnounceAgain, End, NotStale, Wait

UNSCHEDULED = frozenset({ExecutionStatus.REQUESTED, ExecutionStatus.SCHEDULING})

WITH_THE_SCHEDULER = "its request may still be with the scheduler"
REPUBLISHING_IS_OFF = (
    "dlq-handler publishes no request again, because dlq_handler.monitor.republish_requests is false"
)

# What the scheduler writes so soon after we announced an execution again is its answer to that: with no worker at hand
# it takes the row up and puts it back.
ANSWER_WITHIN = timedelta(seconds=60)

# With a timeout of 15 minutes the longest pause is 4 hours, and 20 requests last for two and a half days.
LONGEST_PAUSE_DOUBLINGS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class UnscheduledPolicy:
    timeout_seconds: float
    quiet_seconds: float
    """For so long the scheduler's queue must have been seen empty, with a consumer: else the request may be in it."""
    may_fail: bool
    republish_limit: int = 20
    """Maximum number of requests that dlq-handler publishes for one execution."""
    republishes: bool = True
    """False: dlq-handler publishes no request again, and ends no execution for it."""

    def pause_after(self, requests: int) -> timedelta:
        """The pause before the next request; it doubles from the timeout to 16 times the timeout."""
        factor = 2 ** min(max(requests - 1, 0), LONGEST_PAUSE_DOUBLINGS)
        return timedelta(seconds=self.timeout_seconds * factor)


UnscheduledDecision = End | AnnounceAgain | Wait | NotStale


def decide_unscheduled(
    row: Unscheduled,
    *,
    quiet_seconds: float | None,
    policy: UnscheduledPolicy,
    now: datetime,
    steady_since: datetime | None = None,
) -> UnscheduledDecision:
    """`quiet_seconds`: how long the scheduler's queue was seen empty with a consumer; None: it is not, or unknown.

    `steady_since`: before this moment the database's clock jumped ahead, so no waiting counts from before it.
    """
    execution, timeout = row.execution, timedelta(seconds=policy.timeout_seconds)
    if execution.status not in UNSCHEDULED:
        return NotStale(f"{execution.status}: none that waits to be scheduled")
    if row.is_workflow_parent:
        return NotStale("a workflow's parent: its tasks decide over it")
    evidence = _evidence(row, quiet_seconds, policy, now)
    if row.is_in_line:
        return Wait("waits in the line of its action for a slot", None, evidence)
    since = max(execution.updated, steady_since or execution.updated)
    if row.next_retry_at is not None:
        retry_at = read_time(row.next_retry_at)
        if retry_at is None:
            return Wait("its workflow_task.next_retry_at cannot be read, so it may lie ahead", None, evidence)
        if retry_at > now:
            return Wait("waits for the time of its retry", retry_at, evidence)
        since = max(since, retry_at)
    # Differences, not sums: a time that others wrote may be the last moment a datetime can hold.
    if not policy.republishes:
        explanation = WITH_THE_SCHEDULER if now - since < timeout else "it was not scheduled in time"
        return Wait(f"{explanation}; {REPUBLISHING_IS_OFF}", None, evidence)
    if now - since < timeout:
        return Wait(WITH_THE_SCHEDULER, since + timeout if since <= now else None, evidence)
    if row.has_unconfirmed:
        return Wait("the broker has not confirmed its last request yet", None, evidence)
    repeated_at = row.republished_at
    may_end = policy.may_fail and repeated_at is not None and _is_unanswered(row, repeated_at, policy)
    if not may_end and row.requests >= policy.republish_limit:
        return Wait(_at_limit(row), None, evidence)
    pause = policy.pause_after(row.requests)
    if not may_end and repeated_at is not None and now - repeated_at < pause:
        times = f"{row.requests} of at most {policy.republish_limit} times"
        explanation = f"requested again {times}, and still not scheduled"
        return Wait(explanation, repeated_at + pause, evidence)
    if quiet_seconds is None or quiet_seconds < policy.quiet_seconds:
        return Wait(
            f"its request may be in the scheduler's queue, which was not seen empty with a consumer for "
            f"{policy.quiet_seconds:g} s",
            None,
            evidence,
        )
    waited = f"{execution.status} for {(now - since).total_seconds():.0f} s"
    if may_end and repeated_at is not None:
        if now - repeated_at < timeout:
            return Wait("requested again", repeated_at + timeout, evidence)
        explanation = f"{waited}, although it was requested again"
        return End(ExecutionStatus.FAILED, explanation, evidence, policy.timeout_seconds)
    explanation = (
        f"request {row.requests + 1} of at most {policy.republish_limit}: {waited}, the scheduler's queue is empty, "
        "and nothing says that it may wait"
    )
    return AnnounceAgain(explanation, evidence)


def _is_unanswered(row: Unscheduled, repeated_at: datetime, policy: UnscheduledPolicy) -> bool:
    """The last request led to nothing: the row is as it was, or was put back at once; or it was the last one."""
    return row.execution.updated - repeated_at <= ANSWER_WITHIN or row.requests >= policy.republish_limit


def _at_limit(row: Unscheduled) -> str:
    if row.requests == 0:
        return "dlq_handler.monitor.republish_limit is 0, so dlq-handler does not request it again"
    return (
        f"requested again {row.requests} times and never scheduled; dlq-handler stops at "
        "dlq_handler.monitor.republish_limit. Start a worker that can run its action, then raise that limit or run it "
        "again"
    )


def _evidence(
    row: Unscheduled, quiet_seconds: float | None, policy: UnscheduledPolicy, now: datetime
) -> dict[str, object]:
    repeated_at = row.republished_at
    return {
        "age_seconds": round((now - row.execution.updated).total_seconds(), 1),
        "timeout_seconds": policy.timeout_seconds,
        "scheduler_queue_quiet_seconds": rounded(quiet_seconds),
        "is_in_line": row.is_in_line,
        "next_retry_at": row.next_retry_at,
        "republished_at": repeated_at.isoformat() if repeated_at else None,
        "requests": row.requests,
        "has_unconfirmed_request": row.has_unconfirmed,
    }
