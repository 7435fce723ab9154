"""What becomes of a flow's record with each action of the leader. Pure.

Each function returns the record to write; `flows_sql.save` writes it only over the version that was read.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from dlq_handler.lifecycle.flow import Flow, FlowKind, FlowObservation, FlowStatus, StopStep
from dlq_handler.lifecycle.next_step import LEAKED_PAUSE_SECONDS, pause_after_attempt

LONGEST_ERROR = 500


def begun(flow: Flow, *, existing: Collection[str], lease: str) -> Flow:
    """`existing`: queues of the flow that are there before the start makes any."""
    made = tuple(name for name in flow.queue_names if name not in existing)
    return replace(flow, made=made, last_lease=lease)


def activated(flow: Flow, *, lease: str, now: datetime) -> Flow:
    return replace(
        flow,
        status=FlowStatus.ACTIVE,
        since=now,
        step=None,
        step_since=now,
        is_retired_bound=False,
        last_error=None,
        last_lease=lease,
    )


def rolled_back(flow: Flow, *, left: Iterable[str], error: str, lease: str, now: datetime) -> Flow:
    """`left`: queues that the start made and that could not be deleted, because they are in use."""
    return replace(
        flow,
        status=FlowStatus.STOPPED,
        since=now,
        step=None,
        step_since=now,
        leaked=tuple(left),
        next_attempt_at=now + timedelta(seconds=LEAKED_PAUSE_SECONDS),
        last_error=shortened(error),
        last_lease=lease,
    )


def stop_wanted(flow: Flow, *, wanted_by: str, comment: str | None, now: datetime) -> Flow:
    """Without anything of an earlier stop that was aborted."""
    return replace(
        flow,
        status=FlowStatus.STOPPING,
        since=now,
        step=None,
        step_since=now,
        has_cordoned=False,
        idle_heartbeat=None,
        is_retired_bound=False,
        rerouted_at=None,
        aborted_at=None,
        delete_attempts=0,
        next_attempt_at=None,
        leaked=(),
        archived=0,
        archived_beyond_limit=0,
        wanted_by=wanted_by,
        comment=comment,
        last_error=None,
    )


def taken(flow: Flow, step: StopStep, observed: FlowObservation, *, lease: str, now: datetime) -> Flow:
    after = replace(flow, step=step, step_since=now, last_lease=lease, last_error=None)
    match step:
        case StopStep.REROUTED:
            # The stop has found the worker idle.
            return replace(
                after, idle_heartbeat=None if observed.worker is None else observed.worker.last_heartbeat
            )
        case StopStep.DELETED:
            return replace(after, delete_attempts=0, next_attempt_at=None)
        case StopStep.STOPPED:
            next_attempt_at = now + timedelta(seconds=LEAKED_PAUSE_SECONDS) if flow.leaked else None
            return replace(
                after,
                status=FlowStatus.STOPPED,
                since=now,
                next_attempt_at=next_attempt_at,
                last_error=flow.last_error if flow.leaked else None,
            )
        case StopStep.SIGNALLED | StopStep.IDLE | StopStep.DRAINED:
            return after


def drained(flow: Flow, *, archived: int, beyond_limit: int, lease: str) -> Flow:
    return replace(
        flow,
        archived=flow.archived + archived,
        archived_beyond_limit=flow.archived_beyond_limit + beyond_limit,
        last_lease=lease,
    )


def tried_to_delete(flow: Flow, errors: Collection[str], *, lease: str, now: datetime) -> Flow:
    """`errors`: of the queues that were not deleted; empty when all were."""
    if not errors:
        return replace(flow, last_lease=lease)
    pause = pause_after_attempt(flow.delete_attempts + 1)
    if flow.status is FlowStatus.STOPPED:
        pause = timedelta(seconds=LEAKED_PAUSE_SECONDS)
    return replace(
        flow,
        delete_attempts=flow.delete_attempts + 1,
        next_attempt_at=now + pause,
        last_error=shortened("; ".join(errors)),
        last_lease=lease,
    )


def leaked(flow: Flow, queues: Iterable[str], *, lease: str) -> Flow:
    return replace(flow, leaked=(*flow.leaked, *queues), last_lease=lease)


def forgotten(flow: Flow, queues: Collection[str], *, lease: str) -> Flow:
    left = tuple(name for name in flow.leaked if name not in queues)
    return replace(flow, leaked=left, last_error=flow.last_error if left else None, last_lease=lease)


def cordoned(flow: Flow, *, is_ours: bool, lease: str) -> Flow:
    return replace(flow, has_cordoned=flow.has_cordoned or is_ours, last_lease=lease)


def retired_bound(flow: Flow, *, lease: str) -> Flow:
    return replace(flow, is_retired_bound=True, last_lease=lease)


def unbound(flow: Flow, *, lease: str, now: datetime) -> Flow:
    return replace(flow, rerouted_at=now, last_lease=lease)


def released(flow: Flow, *, lease: str) -> Flow:
    return replace(flow, is_retired_bound=False, last_lease=lease)


def reported(flow: Flow, error: str) -> Flow:
    return replace(flow, last_error=shortened(error))


def aborted(flow: Flow, *, made_again: Collection[str], lease: str, now: datetime) -> Flow:
    """The stop has ended, because the worker has returned. Its queues are a flow's again, or its own."""
    error = f"the stop was aborted: worker {flow.worker_id} has returned"
    if made_again:
        error += f", and {restart_advice(flow, made_again)}"
    return replace(
        flow,
        status=FlowStatus.ACTIVE if flow.kind is FlowKind.FLOW else FlowStatus.STOPPED,
        since=now,
        step=None,
        step_since=now,
        has_cordoned=False,
        idle_heartbeat=None,
        is_retired_bound=False,
        rerouted_at=None,
        aborted_at=now,
        delete_attempts=0,
        next_attempt_at=None,
        leaked=(),
        last_error=shortened(error),
        last_lease=lease,
    )


def restart_advice(flow: Flow, queues: Collection[str]) -> str:
    """A worker whose queue is deleted between its declare and its consume goes on without a consumer."""
    names = ", ".join(sorted(queues))
    return f"{names} had to be made again. Restart worker {flow.worker_id} if one has no consumer."


def shortened(error: str) -> str:
    return error if len(error) <= LONGEST_ERROR else error[: LONGEST_ERROR - 3] + "..."
