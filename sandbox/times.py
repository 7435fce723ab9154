"""Every waiting time of the sandbox, in one place: stock Attune's and the sidecar's defaults, and the same set scaled.

One field is one time. Where the sidecar has a setting for it, the field names the variable, so that Attune's processes
and the sidecar beside them cannot get different times. Imports nothing of the sidecar: a test compares `STOCK` with
the sidecar's own defaults.
"""

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields
from typing import Any


def _time(meaning: str, variable: str | None = None) -> Any:
    """`variable`: of the sidecar, without its prefix. The unit is the end of the field's name."""
    return field(metadata={"meaning": meaning, "variable": variable})


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    name: str

    heartbeat_seconds: int = _time("between two heartbeats of a worker", "WORKER__HEARTBEAT_INTERVAL")
    unavailable_after_seconds: float = _time(
        "without a heartbeat, then a worker is unavailable (the 90 s rule)",
        "DLQ_HANDLER__WORKER__UNAVAILABLE_AFTER_SECONDS",
    )
    worker_queue_ttl_ms: int = _time(
        "until a message expires in a worker's queue", "MESSAGE_QUEUE__RABBITMQ__WORKER_QUEUE_TTL_MS"
    )
    grace_seconds: float = _time(
        "more for its dead letter to arrive", "DLQ_HANDLER__GRACE__AFTER_TTL_SECONDS"
    )
    scheduled_timeout_seconds: int = _time(
        "until an execution that is still scheduled is stale", "EXECUTOR__SCHEDULED_TIMEOUT"
    )
    check_seconds: int = _time(
        "between two scans of Attune's own timeout monitor", "EXECUTOR__TIMEOUT_CHECK_INTERVAL"
    )
    monitor_seconds: float = _time(
        "between two scans of dlq-handler's timeout monitor", "DLQ_HANDLER__MONITOR__INTERVAL_SECONDS"
    )

    heartbeat_check_seconds: float = _time("between two looks of the executor for workers to set inactive")
    reclaim_after_seconds: float = _time(
        "until a request that a scheduler dropped half-way may be taken up again"
    )
    shutdown_seconds: float = _time("for running actions when a worker is asked to stop")
    action_seconds: float = _time("for an action to run", "DLQ_HANDLER__WORKER__RUN_LIMIT_SECONDS")

    confirm_after_seconds: float = _time(
        "between the two looks that must find a worker lost", "DLQ_HANDLER__MONITOR__CONFIRM_AFTER_SECONDS"
    )
    held_timeout_seconds: float = _time(
        "for a living worker to hold a dispatch", "DLQ_HANDLER__MONITOR__HELD_TIMEOUT_SECONDS"
    )
    canceling_timeout_seconds: float = _time(
        "for an execution to be canceling", "DLQ_HANDLER__MONITOR__CANCELING_TIMEOUT_SECONDS"
    )
    unscheduled_timeout_seconds: float = _time(
        "for an execution to be requested and not scheduled",
        "DLQ_HANDLER__MONITOR__UNSCHEDULED_TIMEOUT_SECONDS",
    )
    quiet_seconds: float = _time(
        "of an empty scheduler's queue before a request is repeated", "DLQ_HANDLER__MONITOR__QUIET_SECONDS"
    )
    missing_event_seconds: float = _time(
        "for the missing completion event of an end", "DLQ_HANDLER__MONITOR__MISSING_EVENT_SECONDS"
    )
    held_slot_seconds: float = _time(
        "for an ended execution to hold its slot", "DLQ_HANDLER__MONITOR__HELD_SLOT_SECONDS"
    )
    reconcile_seconds: float = _time(
        "between two checks for missing events and held slots",
        "DLQ_HANDLER__MONITOR__RECONCILE_INTERVAL_SECONDS",
    )
    watch_seconds: float = _time(
        "between two checks for new workers", "DLQ_HANDLER__WORKER__WATCH_INTERVAL_SECONDS"
    )
    reapply_seconds: float = _time(
        "until all bindings are made again", "DLQ_HANDLER__TOPOLOGY__REAPPLY_INTERVAL_SECONDS"
    )
    canary_seconds: float = _time("between two canaries of a worker", "DLQ_HANDLER__CANARY__INTERVAL_SECONDS")
    canary_ttl_ms: int = _time("until a canary expires", "DLQ_HANDLER__CANARY__TTL_MS")
    canary_limit_seconds: float = _time(
        "more for it to arrive, then it is lost", "DLQ_HANDLER__CANARY__LIMIT_SECONDS"
    )
    flow_seconds: float = _time("between two checks of the flows", "DLQ_HANDLER__LIFECYCLE__INTERVAL_SECONDS")
    consumer_wait_seconds: float = _time(
        "until a stop that waits for consumers is reported", "DLQ_HANDLER__LIFECYCLE__CONSUMER_WAIT_SECONDS"
    )
    settle_seconds: float = _time(
        "between the unbinding of a queue and its deletion", "DLQ_HANDLER__LIFECYCLE__SETTLE_SECONDS"
    )
    database_away_seconds: float = _time(
        "without a database until dead letters go back to the queue",
        "DLQ_HANDLER__PAUSE__DATABASE_OUTAGE_SECONDS",
    )
    connect_timeout_seconds: float = _time(
        "for an attempt to connect", "DLQ_HANDLER__BROKER__CONNECT_TIMEOUT_SECONDS"
    )
    amqp_heartbeat_seconds: int = _time(
        "between two AMQP heartbeats", "DLQ_HANDLER__BROKER__HEARTBEAT_SECONDS"
    )
    publish_timeout_seconds: float = _time(
        "for the broker to confirm a completion event", "DLQ_HANDLER__BROKER__PUBLISH_TIMEOUT_SECONDS"
    )
    lease_seconds: float = _time(
        "until a completion event of a dead sidecar is reclaimed", "DLQ_HANDLER__OUTBOX__LEASE_SECONDS"
    )
    poll_seconds: float = _time(
        "between two scans of the outbox", "DLQ_HANDLER__OUTBOX__POLL_INTERVAL_SECONDS"
    )
    most_backoff_seconds: float = _time(
        "between two attempts to publish, at most", "DLQ_HANDLER__OUTBOX__MAX_BACKOFF_SECONDS"
    )
    brake_hold_seconds: float = _time("for the brake to hold", "DLQ_HANDLER__BRAKE__HOLD_SECONDS")
    sidecar_shutdown_seconds: float = _time(
        "for a sidecar that is asked to stop to finish", "DLQ_HANDLER__GRACE__SHUTDOWN_SECONDS"
    )

    @property
    def late_after_seconds(self) -> int:
        """Three missed heartbeats, as the sidecar counts."""
        return 3 * self.heartbeat_seconds

    @classmethod
    def named(cls, name: str) -> "Times":
        """ValueError for a name that is neither of the two."""
        for times in (SCALED, STOCK):
            if times.name == name:
                return times
        raise ValueError(f"there are no times named {name!r}; known are scaled and stock")


STOCK = Times(
    name="stock",
    heartbeat_seconds=30,
    unavailable_after_seconds=90,
    worker_queue_ttl_ms=300_000,
    grace_seconds=30,
    scheduled_timeout_seconds=300,
    check_seconds=60,
    monitor_seconds=10,
    heartbeat_check_seconds=60,
    reclaim_after_seconds=30,
    shutdown_seconds=30,
    action_seconds=300,
    confirm_after_seconds=30,
    held_timeout_seconds=3600,
    canceling_timeout_seconds=3600,
    unscheduled_timeout_seconds=900,
    quiet_seconds=60,
    missing_event_seconds=60,
    held_slot_seconds=600,
    reconcile_seconds=300,
    watch_seconds=2,
    reapply_seconds=600,
    canary_seconds=60,
    canary_ttl_ms=5_000,
    canary_limit_seconds=30,
    flow_seconds=2,
    consumer_wait_seconds=60,
    settle_seconds=10,
    database_away_seconds=30,
    connect_timeout_seconds=5,
    amqp_heartbeat_seconds=10,
    publish_timeout_seconds=10,
    lease_seconds=60,
    poll_seconds=2,
    most_backoff_seconds=300,
    brake_hold_seconds=600,
    sidecar_shutdown_seconds=30,
)

SCALED = Times(
    name="scaled",
    heartbeat_seconds=1,
    unavailable_after_seconds=5,
    worker_queue_ttl_ms=5_000,
    grace_seconds=2,
    scheduled_timeout_seconds=8,
    check_seconds=1,
    monitor_seconds=1,
    heartbeat_check_seconds=2,
    reclaim_after_seconds=2,
    shutdown_seconds=5,
    action_seconds=30,
    confirm_after_seconds=2,
    held_timeout_seconds=60,
    canceling_timeout_seconds=30,
    unscheduled_timeout_seconds=6,
    quiet_seconds=2,
    missing_event_seconds=5,
    held_slot_seconds=15,
    reconcile_seconds=3,
    watch_seconds=0.3,
    reapply_seconds=10,
    canary_seconds=2,
    canary_ttl_ms=1_000,
    canary_limit_seconds=5,
    flow_seconds=0.3,
    consumer_wait_seconds=10,
    settle_seconds=1,
    database_away_seconds=3,
    connect_timeout_seconds=2,
    amqp_heartbeat_seconds=3,
    publish_timeout_seconds=2,
    lease_seconds=4,
    poll_seconds=0.2,
    most_backoff_seconds=5,
    brake_hold_seconds=20,
    sidecar_shutdown_seconds=10,
)


def sidecar_environment(times: Times) -> dict[str, str]:
    """The variables that give a sidecar these times."""
    return {
        f"ATTUNE__{one.metadata['variable']}": f"{getattr(times, one.name):g}"
        for one in _times()
        if one.metadata["variable"]
    }


def describe(times: Times) -> list[str]:
    """A line for each time, for people."""
    lines = []
    for one in _times():
        value = getattr(times, one.name)
        seconds = value / 1000 if one.name.endswith("_ms") else value
        lines.append(f"{seconds:>5g} s  {one.metadata['meaning']}")
    lines.insert(1, f"{times.late_after_seconds:>5g} s  without a heartbeat, then a worker is late")
    return [f"times: {times.name}", *lines]


def describe_briefly(times: Times) -> list[str]:
    """The times that a viewer of the demo waits for. The whole list would not fit on a screen."""
    return [*describe(times)[:8], "  ... the others are in sandbox/times.py"]


def _times() -> Iterator[Field[Any]]:
    return (one for one in fields(Times) if one.name != "name")
