"""Decide about an end of Attune's timeout monitor whose completion event may be lost. Pure.

Attune's services never reconnect to the broker. After a lost connection the executor's monitor goes on ending
executions, and their completion events are lost. It has lost its consumers as well, so such an end lies in an
interval in which the queue of completion events had no consumer. That is strong evidence, and no proof: an executor may
have lost its consumer alone. A repeated event frees a slot once, whatever happens. But for a workflow task it makes a
second retry, or sets the workflow's variables a second time. So the event of a task waits until the host would have
answered an event of its own, and is not published where it has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from dlq_handler.host.ends import EndedTask, MonitorEnd
from dlq_handler.host.execution import TERMINAL, ExecutionStatus
from dlq_handler.host.names import COMPLETED_KEY, COMPLETED_QUEUE

# The host creates a retry only after these ends.
_RETRIED = frozenset({ExecutionStatus.FAILED, ExecutionStatus.TIMEOUT})

# Attune holds the message during the delay of a retry. After 30 minutes RabbitMQ closes its channel.
LONGEST_RETRY_DELAY_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class PublishEnd:
    pass


@dataclass(frozen=True, slots=True)
class WaitToPublish:
    explanation: str


@dataclass(frozen=True, slots=True)
class LeaveEnd:
    """The host knows this end, or no component waits for it."""

    explanation: str


EndDecision = PublishEnd | WaitToPublish | LeaveEnd


def decide_unpublished(
    one: MonitorEnd, *, quiet_seconds: float, wanted_quiet_seconds: float, unacked: int | None
) -> EndDecision:
    """`quiet_seconds`: how long the queue has been empty, with a consumer. `unacked`: messages that its consumers hold;
    None: unknown.
    """
    status, task = one.end.execution.status, one.task
    delay = 0.0
    if task is not None:
        if (known := _known_to_host(task)) is not None:
            return LeaveEnd(known)
        if not task.is_workflow_readable:
            # Whether the workflow has continued is unknown: a second event would set its variables again.
            return WaitToPublish("dlq-handler may not read workflow_execution; run `dlq-handler grants`")
        delay = retry_delay_seconds(status, task)
    if quiet_seconds < wanted_quiet_seconds + delay:
        return WaitToPublish(f"the queue must have been empty for {wanted_quiet_seconds + delay:g} s")
    if task is not None and unacked:
        return WaitToPublish(f"the consumers of the queue hold {unacked} messages")
    return PublishEnd()


def _known_to_host(task: EndedTask) -> str | None:
    """How the host has answered the end; None: it seems not to know the end."""
    if task.parent_status is None:
        return "its workflow does not exist"
    if task.parent_status in TERMINAL:
        return f"its workflow is {task.parent_status}"
    if task.is_retried:
        return "its workflow has retried it"
    if task.is_advanced:
        return "its workflow has continued"
    return None


def retry_delay_seconds(status: ExecutionStatus, task: EndedTask) -> float:
    """The longest time that the host may take to create the retry of this task, whose workflow is readable."""
    if status not in _RETRIED:
        return 0.0
    retries, most = _whole(task.retry_count) or 0, _whole(task.max_retries)
    if task.max_retries is None or (most is not None and retries >= most):
        return 0.0
    retry = task.retry if isinstance(task.retry, Mapping) else {}
    delay = _whole(retry.get("delay")) or 0
    # One doubling more than Attune may count, for a version that counts from one.
    factors = {"linear": retries + 1, "exponential": 2 ** min(retries + 1, 20)}
    delay *= factors.get(str(retry.get("backoff")).lower(), 1)
    if (most_delay := _whole(retry.get("max_delay"))) is not None:
        delay = min(delay, most_delay)
    return min(float(delay), LONGEST_RETRY_DELAY_SECONDS)


def unpublished_text(one: MonitorEnd) -> str:
    """For `executions explain`: what becomes of a completion event that dlq-handler has not published."""
    by = "Attune's timeout monitor ended it"
    is_observed = one.interval is not None
    explanation = (
        f"{by} while the queue had no consumer" if is_observed else f"{by}, and it still holds its slot"
    )
    decision = decide_unpublished(one, quiet_seconds=float("inf"), wanted_quiet_seconds=0.0, unacked=None)
    match decision:
        case PublishEnd():
            # A workflow task may take longer: the delay of its retry is added.
            slot = (
                "" if is_observed else "it has held its slot for dlq_handler.monitor.held_slot_seconds and "
            )
            return (
                f"{COMPLETED_KEY} is not published yet: {explanation}; dlq-handler publishes it when {slot}"
                f"{COMPLETED_QUEUE} has had a consumer and no message for "
                "dlq_handler.monitor.quiet_seconds"
            )
        case WaitToPublish(explanation=wait):
            return f"{COMPLETED_KEY} is not published yet: {explanation}; {wait}"
        case LeaveEnd(explanation=known):
            return f"dlq-handler publishes no {COMPLETED_KEY}: {explanation}, but {known}"
        case _:
            assert_never(decision)


def _whole(value: object) -> int | None:
    """None for anything but a whole number of a plausible size: the values are the host's JSON."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < 10**9 else None
