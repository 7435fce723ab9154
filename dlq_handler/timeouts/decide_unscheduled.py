"""Decide about an execution that was requested and has not been scheduled. Pure and total: no I/O, no clock.

Nothing was dispatched yet, so no message of it can expire. Either it waits for a good reason (a slot of its action, the
time of its retry), or its request was lost: a scheduler that meets an error drops the message. When no worker is
available, the scheduler also puts the row back, which makes a new state of the row. To request it again is harmless,
because a scheduler claims an execution once. So when unsure it waits; then its request is published again, with growing
pauses and a limit per execution. It ends only where `fail_unscheduled` is set.
"""

from datetime import datetime, timedelta

from dlq_handler.dead_letters.parse import read_time
from dlq_handler.host.execution import ExecutionStatus, Unscheduled
from dlq_handler.text import rounded
from dlq_handler.timeouts.decision import End, NotStale, RepublishRequest, Wait
from dlq_handler.timeouts.options import MonitorOptions

UNSCHEDULED = frozenset({ExecutionStatus.REQUESTED, ExecutionStatus.SCHEDULING})

WITH_SCHEDULER = "its request may still be with the scheduler"
REPUBLISHING_IS_OFF = (
    "dlq-handler publishes no request again, because dlq_handler.monitor.republish_requests is false"
)

# What the scheduler writes so soon after a repeated request is its answer to it: without an available worker it takes
# the row and puts it back.
ANSWER_WITHIN = timedelta(seconds=60)

# With a timeout of 15 minutes the longest pause is 4 hours, and 20 requests last for two and a half days.
LONGEST_PAUSE_DOUBLINGS = 4

UnscheduledDecision = End | RepublishRequest | Wait | NotStale


def decide_unscheduled(
    row: Unscheduled,
    *,
    quiet_seconds: float | None,
    options: MonitorOptions,
    steady_since: datetime | None = None,
) -> UnscheduledDecision:
    """`quiet_seconds`: how long the scheduler's queue has been empty with a consumer; None: it is not, or unknown.

    `steady_since`: before this moment the database's clock jumped ahead, so no waiting counts from before it.
    """
    execution, now = row.execution, row.now
    timeout = timedelta(seconds=options.unscheduled_timeout_seconds)
    if execution.status not in UNSCHEDULED:
        return NotStale(f"it is {execution.status}, so it does not wait to be scheduled")
    if row.is_workflow_parent:
        return NotStale("it is the parent of a workflow: it ends with its tasks")
    evidence = _evidence(row, quiet_seconds, options)
    if row.waits_for_slot:
        return Wait("it waits for a slot of its action", None, evidence)
    since = max(execution.updated, steady_since or execution.updated)
    if row.next_retry_at is not None:
        retry_at = read_time(row.next_retry_at)
        if retry_at is None:
            return Wait("its workflow_task.next_retry_at cannot be read, so it may lie ahead", None, evidence)
        if retry_at > now:
            return Wait("it waits for the time of its retry", retry_at, evidence)
        since = max(since, retry_at)
    # Differences, not sums: a time that others wrote may be the last moment a datetime can hold.
    is_overdue = now - since >= timeout
    if not options.republish_requests:
        explanation = "it was not scheduled in time" if is_overdue else WITH_SCHEDULER
        return Wait(f"{explanation}; {REPUBLISHING_IS_OFF}", None, evidence)
    if not is_overdue:
        return Wait(WITH_SCHEDULER, since + timeout if since <= now else None, evidence)
    if row.has_unconfirmed:
        return Wait("the broker has not confirmed its last request yet", None, evidence)
    repeated_at = row.republished_at
    may_end = (
        options.fail_unscheduled and repeated_at is not None and _is_unanswered(row, repeated_at, options)
    )
    if not may_end and row.requests >= options.republish_limit:
        return Wait(_at_limit(row), None, evidence)
    pause = _pause_after(row.requests, options)
    if not may_end and repeated_at is not None and now - repeated_at < pause:
        times = f"{row.requests} of at most {options.republish_limit} times"
        explanation = f"requested again {times}, and still not scheduled"
        return Wait(explanation, repeated_at + pause, evidence)
    if quiet_seconds is None or quiet_seconds < options.quiet_seconds:
        return Wait(
            f"its request may be in the scheduler's queue, which was not seen empty with a consumer for "
            f"{options.quiet_seconds:g} s",
            None,
            evidence,
        )
    waited = f"{execution.status} for {(now - since).total_seconds():.0f} s"
    if may_end and repeated_at is not None:
        if now - repeated_at < timeout:
            return Wait("requested again", repeated_at + timeout, evidence)
        explanation = f"{waited}, although it was requested again"
        return End(ExecutionStatus.FAILED, explanation, evidence, options.unscheduled_timeout_seconds)
    explanation = (
        f"request {row.requests + 1} of at most {options.republish_limit}: {waited}, the scheduler's queue is empty, "
        "and no reason to wait is known"
    )
    return RepublishRequest(explanation, evidence)


def _pause_after(requests: int, options: MonitorOptions) -> timedelta:
    """The pause before the next request; it doubles from the timeout to 16 times the timeout."""
    factor = 2 ** min(max(requests - 1, 0), LONGEST_PAUSE_DOUBLINGS)
    return timedelta(seconds=options.unscheduled_timeout_seconds * factor)


def _is_unanswered(row: Unscheduled, repeated_at: datetime, options: MonitorOptions) -> bool:
    """The last request changed nothing: the row is as it was, or was put back at once; or it was the last request."""
    return row.execution.updated - repeated_at <= ANSWER_WITHIN or row.requests >= options.republish_limit


def _at_limit(row: Unscheduled) -> str:
    if row.requests == 0:
        return "dlq_handler.monitor.republish_limit is 0, so dlq-handler does not request it again"
    return (
        f"requested again {row.requests} times and never scheduled; dlq-handler stops at "
        "dlq_handler.monitor.republish_limit. Start a worker that can run its action, then raise that limit or run it "
        "again"
    )


def _evidence(row: Unscheduled, quiet_seconds: float | None, options: MonitorOptions) -> dict[str, object]:
    repeated_at = row.republished_at
    return {
        "age_seconds": round((row.now - row.execution.updated).total_seconds(), 1),
        "timeout_seconds": options.unscheduled_timeout_seconds,
        "scheduler_queue_quiet_seconds": rounded(quiet_seconds),
        "waits_for_slot": row.waits_for_slot,
        "next_retry_at": row.next_retry_at,
        "republished_at": repeated_at.isoformat() if repeated_at else None,
        "requests": row.requests,
        "has_unconfirmed_request": row.has_unconfirmed,
    }
