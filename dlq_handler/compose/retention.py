"""Put the retention steps of all rooms into one order."""

from dlq_handler.dead_letters import retention as dead_letters
from dlq_handler.diagnosis import retention as diagnosis
from dlq_handler.endings import retention as endings
from dlq_handler.history.retention import HISTORY_STEPS, WORKER_STEPS, RetentionStep
from dlq_handler.operations import retention as operations
from dlq_handler.timeouts import retention as timeouts


def retention_steps() -> tuple[RetentionStep, ...]:
    """All steps, in the order in which they run. The large tables, which are cleaned in batches, come first."""
    # A step that a room adds fails the type check until it is unpacked here. Give it its place below, too.
    resolved, unresolved, minutes, groups = dead_letters.STEPS
    (confirmed_events,) = endings.STEPS
    decisions, repeated_requests, unconsumed_intervals = timeouts.STEPS
    worker_looks, worker_connections = WORKER_STEPS
    events, worker_changes = HISTORY_STEPS
    (diagnoses,) = diagnosis.STEPS
    (audit,) = operations.STEPS
    return (
        resolved,
        unresolved,
        confirmed_events,
        decisions,
        repeated_requests,
        worker_looks,
        unconsumed_intervals,
        worker_connections,
        minutes,
        events,
        worker_changes,
        diagnoses,
        groups,
        audit,
    )
