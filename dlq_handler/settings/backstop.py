"""The keys of the backstop: the timeout monitor, and what keeps it and us from making an outage worse."""

from typing import Annotated

from pydantic import Field

from dlq_handler.settings.value_types import OwnSection, QueueName, Seconds


class Monitor(OwnSection):
    """The timeout monitor. It looks every `executor.timeout_check_interval` seconds."""

    enabled: bool = Field(
        default=True,
        description=(
            "Whether executions are looked for that no dead letter told of; when false, one whose message was "
            "lost, or whose worker died while running it, hangs for ever."
        ),
    )
    confirm_after_seconds: Annotated[Seconds, Field(ge=1, le=3600)] = Field(
        default=30,
        description=(
            "Least seconds between the two looks that must both find a worker unavailable, with the same last "
            "heartbeat, before what it was running is abandoned."
        ),
    )
    held_timeout_seconds: Annotated[Seconds, Field(ge=1, le=30 * 86_400)] = Field(
        default=3600,
        description=(
            "Age in seconds at which a scheduled execution is failed although its worker is not known to be "
            "unavailable; a busy worker holds prefetched messages for long and runs them in the end."
        ),
    )
    canceling_timeout_seconds: Annotated[Seconds, Field(ge=1, le=30 * 86_400)] = Field(
        default=3600,
        description="Seconds after which an execution that is still canceling is cancelled.",
    )
    unscheduled_timeout_seconds: Annotated[Seconds, Field(ge=1, le=30 * 86_400)] = Field(
        default=900,
        description=(
            "Seconds after which an execution that is still requested or scheduling is requested again, if nothing "
            "says that it may wait. The pause before each further request doubles, up to 16 times this value."
        ),
    )
    republish_limit: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=20,
        description=(
            "Maximum number of requests that are published again for one execution; 0 turns them off. The default "
            "lasts for 64 hours with the default timeout, so for a weekend without workers. After the last one the "
            "execution waits: `status` and `executions explain` say so."
        ),
    )
    quiet_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = Field(
        default=60,
        description=(
            "Seconds for which the scheduler's queue must have been seen empty, with a consumer, before an "
            "execution is announced again: until then its request may be in that queue."
        ),
    )
    fail_unscheduled: bool = Field(
        default=False,
        description=(
            "Fail an execution that was requested again and is still not scheduled after another "
            "`unscheduled_timeout_seconds`."
        ),
    )
    page_size: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1000,
        description="Executions looked at in one transaction of a sweep.",
    )
    reconcile_interval_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = Field(
        default=300,
        description=(
            "Every how many seconds slots held by ended executions, ends that nobody announced, and "
            "executions brought back by a late worker are looked for."
        ),
    )
    silent_end_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = Field(
        default=60,
        description=(
            "Seconds that Attune's own dead-letter handler gets to announce an execution it failed; then it is "
            "taken for the silent end it is in stock Attune, and we announce it."
        ),
    )
    held_slot_seconds: Annotated[Seconds, Field(ge=1, le=30 * 86_400)] = Field(
        default=600,
        description=(
            "Seconds for which an execution that has ended may still hold its slot before its end is announced "
            "again; earlier, the notice may be on its way."
        ),
    )


class Brake(OwnSection):
    """Stops a mass failure. One state for all replicas."""

    max_verdicts_per_minute: Annotated[int, Field(ge=0, le=10_000_000)] = Field(
        default=10_000,
        description=(
            "Maximum number of executions that all replicas together end in 60 seconds before the brake trips. Each "
            "batch that runs at that moment may exceed it once, by its own size (`batch.size`, `monitor.page_size`). "
            "Once the brake has tripped the limit is exact. 0 means no limit."
        ),
    )
    hold_seconds: Annotated[Seconds, Field(ge=0, le=7 * 86_400)] = Field(
        default=600,
        description=(
            "Seconds for which dlq-handler then ends nothing, before it goes on at that rate. 0 means until "
            "`dlq-handler brake release`."
        ),
    )


class Gate(OwnSection):
    """No decisions while what dlq-handler reads from the database is unreliable."""

    unknown_percent: Annotated[int, Field(ge=0, le=100)] = Field(
        default=50,
        description=(
            "When so many percent of 20 or more letters name executions that do not exist, we are at the wrong "
            "database, and stop; 0 means that we never do."
        ),
    )


class Shadow(OwnSection):
    """Watch, and only say what would have been done."""

    enabled: bool = Field(
        default=False,
        description=(
            "Whether copies of the letters are judged and nothing is changed or announced; the intake queue is "
            "then neither consumed nor bound."
        ),
    )
    queue: QueueName = Field(
        default="attune.dlx.shadow.queue",
        description="Our own queue for the copies, declared with the two limits below.",
    )
    max_letters: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        default=10_000,
        description="Copies that the queue keeps while nobody reads them; older ones are dropped.",
    )
    ttl_ms: Annotated[int, Field(ge=1000, le=2**31 - 1)] = Field(
        default=3_600_000,
        description="How long, in milliseconds, the queue keeps a copy.",
    )
