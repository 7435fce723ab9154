"""Decide one execution that no dead letter reports. Pure and total: no I/O, no clock, no exception for odd input.

Promises: never ends a terminal execution, a running or canceling one without a worker, or a scheduled one before its
message must have expired. When unsure it waits: an execution ended late costs time, a live one ended runs twice.
"""

from datetime import datetime
from typing import assert_never

from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.timeouts.case import StaleCase
from dlq_handler.timeouts.decision import End, NotStale, StaleDecision, Wait
from dlq_handler.workers.worker_observation import is_empty, is_unattended
from dlq_handler.workers.worker_process import KEPT_SECONDS, Began, ProcessView

SCANNED = (ExecutionStatus.SCHEDULED, ExecutionStatus.RUNNING, ExecutionStatus.CANCELING)


def decide_stale(case: StaleCase) -> StaleDecision:
    match case.execution.status:
        case ExecutionStatus.SCHEDULED:
            return _decide_scheduled(case)
        case ExecutionStatus.RUNNING:
            return _decide_running(case)
        case ExecutionStatus.CANCELING:
            return _decide_canceling(case)
        case ExecutionStatus.REQUESTED | ExecutionStatus.SCHEDULING:
            return NotStale("not dispatched yet")
        case (
            ExecutionStatus.COMPLETED
            | ExecutionStatus.FAILED
            | ExecutionStatus.CANCELLED
            | ExecutionStatus.TIMEOUT
            | ExecutionStatus.ABANDONED
        ):
            return NotStale(f"already {case.execution.status}")
        case _:
            assert_never(case.execution.status)


def _decide_scheduled(case: StaleCase) -> StaleDecision:
    deadline = case.deadline_seconds
    if case.age_seconds < deadline:
        return _wait(case, "its message may still be in the worker's queue", case.when_aged(deadline))
    if case.execution.worker_id is not None and not case.worker.is_queue_known:
        # The deadline is unknown too: the queue may have been declared with a longer TTL than that of the settings, and
        # a worker that comes back before the message expires runs it.
        return _wait(case, "the broker cannot be asked about the queue of its worker", None)
    held_timeout = case.limits.monitor.held_timeout_seconds
    if (queue := case.worker.queue) is not None and queue.has_no_ttl:
        # No message expires there: a worker that comes back runs it, however late that is.
        if queue.holds_messages:
            explanation = f"the queue of worker {case.execution.worker_id} has no TTL and holds messages"
            return _wait(case, explanation, None)
        if queue.may_hold_messages and case.age_seconds < held_timeout:
            explanation = (
                f"the queue of worker {case.execution.worker_id} has no TTL and may still hold its message"
            )
            return _wait(case, explanation, case.when_aged(held_timeout))
    if case.execution.worker_id is None:
        explanation = "its worker's row was deleted"
        return _end(case, ExecutionStatus.FAILED, explanation, deadline)
    if case.why_unavailable is not None:
        return _decide_unavailable(case, case.why_unavailable)
    finding = _message_is_lost(case)
    first = _first_same_check(case)
    confirm_after = case.limits.monitor.confirm_after_seconds
    is_proof = case.publishes.cover(deadline)
    is_confirmed = first is not None and case.seconds_since(first) >= confirm_after
    if finding is not None and is_proof and is_confirmed:
        return _end(case, ExecutionStatus.FAILED, finding, deadline)
    # Beyond both limits only a publish that hangs right now counts: a broker that is slow from time to time must not
    # keep the execution open without end.
    is_beyond_both = case.age_seconds >= held_timeout + deadline
    is_slow = case.publishes.hang_now if is_beyond_both else case.publishes.were_slow_within(deadline)
    if case.age_seconds >= held_timeout and case.are_heartbeats_believed and not is_slow:
        explanation = f"it was not run within {held_timeout:g} s; {_what_is_known(case)}"
        return _end(case, ExecutionStatus.FAILED, explanation, max(deadline, held_timeout))
    if finding is not None and is_proof:
        explanation = f"{finding}; a second check must confirm it"
        return _wait(case, explanation, case.after(first or case.now, confirm_after))
    if finding is not None or is_slow:
        known = finding or _what_is_known(case)
        explanation = f"{known}; its message may hang on the way to the broker: {case.publishes.description}"
        return _wait(case, explanation, case.when_publishes_cover(deadline))
    if case.age_seconds >= held_timeout:
        return _wait(case, _what_is_known(case), case.when_heartbeats_are_believed)
    return _wait(case, _what_is_known(case), case.when_aged(held_timeout))


def _decide_unavailable(case: StaleCase, unavailable: str) -> StaleDecision:
    """Decide a scheduled execution. A worker that consumes may still run it, however old its heartbeat: two checks."""
    queue, limit = case.worker.queue, case.limits.monitor.confirm_after_seconds
    first = _first_unavailable_check(case)
    if is_unattended(queue) or (first is not None and case.seconds_since(first) >= limit):
        return _end(case, ExecutionStatus.FAILED, unavailable, case.deadline_seconds)
    explanation = f"{unavailable}, but its queue has a consumer; a second check must confirm it"
    return _wait(case, explanation, case.after(first or case.now, limit))


def _decide_running(case: StaleCase) -> StaleDecision:
    if case.execution.worker_id is None:
        return NotStale("running without a worker, as the parent of a workflow does")
    unavailable = case.why_unavailable
    if unavailable is None:
        return _decide_process(case)
    limit = case.limits.monitor.confirm_after_seconds
    first = _first_unavailable_check(case)
    if first is None or case.seconds_since(first) < limit:
        return _wait(
            case, f"{unavailable}; a second check must confirm it", case.after(first or case.now, limit)
        )
    unavailable_after = case.limits.availability.unavailable_after_seconds
    return _end(case, ExecutionStatus.ABANDONED, unavailable, unavailable_after)


def _decide_process(case: StaleCase) -> StaleDecision:
    """Decide a running execution whose worker is not known to be unavailable: it may have been restarted."""
    worker_id, process = case.execution.worker_id, case.worker.process
    if process is None:
        return _wait(case, f"worker {worker_id} is not known to be unavailable", None)
    match process.began(case.execution.updated):
        case Began.BY_PRESENT:
            explanation = f"the process of worker {worker_id} that began this run still consumes its queue"
            return _wait(case, explanation, None)
        case Began.BY_FORMER:
            limit, first = case.limits.monitor.confirm_after_seconds, process.known.alone_since or case.now
            explanation = f"worker {worker_id} was restarted: the process that began this run has ended"
            if case.seconds_since(first) < limit:
                return _wait(case, f"{explanation}; a second check must confirm it", case.after(first, limit))
            return _end(case, ExecutionStatus.ABANDONED, explanation, limit, error="Worker restarted")
        case Began.UNKNOWN:
            return _decide_run_limit(case, process)
        case unreachable:
            assert_never(unreachable)


def _decide_run_limit(case: StaleCase, process: ProcessView) -> StaleDecision:
    limit, updated = case.run_limit_seconds, case.execution.updated
    unknown = (
        f"whether worker {case.execution.worker_id} was restarted after this run began is unknown "
        f"({process.unknown_explanation})"
    )
    if case.age_seconds < limit:
        explanation = f"{unknown}; it is abandoned if it still runs at its limit of {limit:g} s"
        return _wait(case, explanation, case.when_aged(limit))
    if not case.are_heartbeats_believed:
        # During a database outage no worker could write that the run has ended.
        return _wait(case, f"{unknown}; the database was unavailable", case.when_heartbeats_are_believed)
    first, needed = process.known.unknown_since(updated), case.limits.monitor.confirm_after_seconds
    if process.known.is_proven(updated):
        # The last check that found a process found this one: a missing answer proves nothing.
        needed = max(KEPT_SECONDS, 3 * needed)
    if case.seconds_since(first) < needed:
        explanation = f"it was not ended within {limit:g} s; {unknown}; a second check must confirm it"
        return _wait(case, explanation, case.after(first, needed))
    explanation = f"it was not ended within {limit:g} s; {unknown}"
    return _end(case, ExecutionStatus.ABANDONED, explanation, limit, error="Execution timeout")


def _decide_canceling(case: StaleCase) -> StaleDecision:
    limit = case.limits.monitor.canceling_timeout_seconds
    if case.execution.worker_id is None:
        return NotStale("canceling without a worker, as the parent of a workflow does")
    if case.age_seconds < limit:
        return _wait(case, "its worker has time to cancel it", case.when_aged(limit))
    explanation = f"worker {case.execution.worker_id} has not confirmed the cancellation"
    return _end(case, ExecutionStatus.CANCELLED, explanation, limit)


def _message_is_lost(case: StaleCase) -> str | None:
    """Why the message seems lost, of a worker that is not known to be unavailable. None: the queue is in order."""
    queue, worker_id = case.worker.queue, case.execution.worker_id
    # After a restart of the broker dlq-handler may be back before the worker that holds the message and runs it.
    if queue is None:
        return f"the queue of worker {worker_id} does not exist"
    if is_unattended(queue):
        return f"the queue of worker {worker_id} has no consumer"
    # A worker that has acknowledged a message needs a moment before it writes `running`.
    if is_empty(queue):
        return f"the queue of worker {worker_id} has a consumer, but holds nothing: the message is lost"
    return None


def _what_is_known(case: StaleCase) -> str:
    """About a worker that is not known to be unavailable. Unknown is never worded as alive."""
    queue = case.worker.queue
    if queue is None:
        return f"{case.heartbeat_knowledge}; it has no queue"
    known = f"{case.heartbeat_knowledge}; its queue has {queue.consumers} consumer(s)"
    if case.age_seconds >= case.limits.monitor.held_timeout_seconds:
        return known
    if queue.unacked is None:
        return f"{known}; only the management API could show whether it has the message"
    return f"{known}; {queue.ready} message(s) are ready, its consumers hold {queue.unacked}"


def _first_same_check(case: StaleCase) -> datetime | None:
    """The earlier one of the last two checks, if it found the queue as it is now and was after the dispatch: an earlier
    check says nothing about its message.
    """
    check = case.worker.check
    if check is None:
        return None
    since = check.unconsumed_since if is_unattended(case.worker.queue) else check.empty_since
    return None if since is None or since < case.execution.updated else since


def _first_unavailable_check(case: StaleCase) -> datetime | None:
    """The first check that found both the worker and the execution as they are now."""
    check, row = case.worker.check, case.worker.row
    if check is None or check.unavailable_since is None:
        return None
    if check.last_heartbeat != (row.last_heartbeat if row else None):
        return None
    # A later change of the execution may be the worker's own.
    return max(check.unavailable_since, case.execution.updated)


def _end(
    case: StaleCase,
    becomes: ExecutionStatus,
    explanation: str,
    limit_seconds: float,
    *,
    error: str = "Worker unavailable",
) -> End:
    return End(becomes, explanation, case.evidence(), limit_seconds, error=error)


def _wait(case: StaleCase, explanation: str, until: datetime | None) -> Wait:
    return Wait(explanation, until, case.evidence())
