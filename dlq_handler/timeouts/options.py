"""Settings of the timeout monitor."""

from typing import Annotated

from pydantic import Field

from dlq_handler.options import OwnSection, Seconds


class MonitorOptions(OwnSection):
    """The timeout monitor, which scans for executions that no dead letter reports."""

    enabled: bool = True
    """Enable the timeout monitor. Without it, an execution whose message was lost, or whose worker stopped while
    running it, never ends. `executor.enable_timeout_monitor` does not switch it: that is Attune's own monitor."""
    interval_seconds: Annotated[Seconds, Field(ge=1, le=3600)] = 10
    """Interval between the end of a scan of the timeout monitor and the next scan, in seconds. Work that runs on an
    unavailable worker is abandoned within `worker.unavailable_after_seconds` + `confirm_after_seconds` + 2 x this
    interval, plus the time that these scans take."""
    confirm_after_seconds: Annotated[Seconds, Field(ge=1, le=3600)] = 30
    """Minimum time between the two checks that must both find a worker unavailable, with the same last heartbeat,
    before the executions that it was running are abandoned, in seconds."""
    held_timeout_seconds: Annotated[Seconds, Field(ge=1, le=30 * 86_400)] = 3600
    """Age at which a scheduled execution is failed although its worker is not known to be unavailable, in seconds. A
    busy worker holds prefetched messages for long and runs them in the end."""
    canceling_timeout_seconds: Annotated[Seconds, Field(ge=1, le=30 * 86_400)] = 3600
    """Age at which an execution that is still canceling is cancelled, in seconds."""
    unscheduled_timeout_seconds: Annotated[Seconds, Field(ge=1, le=30 * 86_400)] = 900
    """Age at which an execution that is still requested or scheduling is requested again, in seconds, if no
    reason to wait is known. The pause before each further request doubles, up to 16 times this value."""
    republish_requests: bool = True
    """Publish the request of an execution again that is still requested or scheduling after
    `unscheduled_timeout_seconds`. Attune's API leaves such a row also when it answered the caller with an error,
    because it could not publish the request. Set to false if callers repeat failed calls: then dlq-handler never
    publishes a request again, and `status` and `executions explain` say so."""
    republish_limit: Annotated[int, Field(ge=0, le=10_000)] = 20
    """Maximum number of requests that are published again for one execution; 0 turns them off. The default lasts for 64
    hours with the default timeout, so for a weekend without workers. After the last one the execution waits:
    `status` and `executions explain` say so."""
    quiet_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = 60
    """Time for which a queue of the executor must have been empty, with a consumer, before dlq-handler publishes what
    seems lost, in seconds: requests for the queue of requests, and ends of Attune's own timeout monitor for the
    queue of completion events. Until then the message may still be in that queue."""
    fail_unscheduled: bool = False
    """Fail an execution that was requested again and is still not scheduled after another
    `unscheduled_timeout_seconds`."""
    batch_size: Annotated[int, Field(ge=1, le=10_000)] = 1000
    """Maximum number of executions in one transaction of a scan."""
    reconcile_interval_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = 300
    """Interval between two scans for slots held by ended executions, ends without a completion event, and executions
    brought back by a late worker, in seconds."""
    missing_event_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = 60
    """Time that Attune's own dead-letter handler gets to publish the completion event of an execution that it failed,
    in seconds. It never does in stock Attune; then dlq-handler publishes the event."""
    held_slot_seconds: Annotated[Seconds, Field(ge=1, le=30 * 86_400)] = 600
    """Time for which an execution that has ended may still hold its slot before its completion event is published
    again, in seconds. Earlier, the event may still be on its way."""
