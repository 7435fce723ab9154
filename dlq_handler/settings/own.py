"""The section `dlq_handler:`, which is ours alone. A key that is not here is an error."""

from typing import Annotated, Literal

from pydantic import Field

from dlq_handler.broker.options import BrokerOptions
from dlq_handler.database.options import DatabaseOptions
from dlq_handler.dead_letters.options import LARGEST_PREFETCH, BatchOptions, IntakeOptions, PauseOptions
from dlq_handler.endings.options import OutboxOptions, ShadowOptions
from dlq_handler.history.options import RetentionOptions
from dlq_handler.options import OwnSection, SchemaName, Seconds
from dlq_handler.safety.options import BrakeOptions, GateOptions
from dlq_handler.timeouts.options import MonitorOptions
from dlq_handler.topology.options import CanaryOptions, TopologyOptions
from dlq_handler.web.options import HttpOptions, UiOptions
from dlq_handler.workers.options import WorkerOptions


class GraceOptions(OwnSection):
    """How much time is allowed beyond what the rule says."""

    shutdown_seconds: Annotated[Seconds, Field(ge=0, le=3600)] = Field(
        default=30,
        description=(
            "Seconds between SIGTERM and the end: to finish the batch and flush the outbox; keep it below "
            "what the container runtime allows, or it kills us first, which repeats work but loses nothing."
        ),
    )
    after_ttl_seconds: Annotated[Seconds, Field(ge=0, le=86_400)] = Field(
        default=30,
        description=(
            "Seconds beyond the queue's TTL before the monitor takes an execution for stale: a message that "
            "expired must have the time to come to us as a letter."
        ),
    )


class StartupOptions(OwnSection):
    """How the process starts."""

    wait_seconds: Annotated[Seconds, Field(ge=0, le=86_400)] = Field(
        default=60,
        description=(
            "Seconds to wait for broker and database at start; then the process ends with exit code 69."
        ),
    )


class LogOptions(OwnSection):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="Least level that is logged; above info, decisions are no longer logged one by one.",
    )
    format: Literal["auto", "json", "console"] = Field(
        default="auto",
        description=(
            "`json` is one object per line, `console` is for people, `auto` is console on a terminal, else "
            "json."
        ),
    )


class DlqHandler(OwnSection):
    """All that only the sidecar needs."""

    replica_name: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None,
        description=(
            "Name of this replica in logs, leases and as AMQP connection name; null means host name and "
            "process id."
        ),
    )
    schema_name: SchemaName = Field(
        alias="schema",
        default="dlq_handler",
        description="Schema of our own tables, in Attune's database; made by `migrate` and by `run`.",
    )
    prefetch: Annotated[int, Field(ge=2, le=LARGEST_PREFETCH)] | None = Field(
        default=None,
        description=(
            "Letters that the broker hands out before it waits for us, at least 2 x `batch.size`, so that "
            "one batch fills while another is written; null means 3 x, as two are written at once. It bounds "
            "memory, with `intake.buffer_bytes`."
        ),
    )
    intake: IntakeOptions = Field(default_factory=IntakeOptions)
    batch: BatchOptions = Field(default_factory=BatchOptions)
    worker: WorkerOptions = Field(default_factory=WorkerOptions)
    topology: TopologyOptions = Field(default_factory=TopologyOptions)
    pause: PauseOptions = Field(default_factory=PauseOptions)
    monitor: MonitorOptions = Field(default_factory=MonitorOptions)
    brake: BrakeOptions = Field(default_factory=BrakeOptions)
    gate: GateOptions = Field(default_factory=GateOptions)
    shadow: ShadowOptions = Field(default_factory=ShadowOptions)
    canary: CanaryOptions = Field(default_factory=CanaryOptions)
    broker: BrokerOptions = Field(default_factory=BrokerOptions)
    database: DatabaseOptions = Field(default_factory=DatabaseOptions)
    outbox: OutboxOptions = Field(default_factory=OutboxOptions)
    retention: RetentionOptions = Field(default_factory=RetentionOptions)
    http: HttpOptions = Field(default_factory=HttpOptions)
    ui: UiOptions = Field(default_factory=UiOptions)
    grace: GraceOptions = Field(default_factory=GraceOptions)
    startup: StartupOptions = Field(default_factory=StartupOptions)
    log: LogOptions = Field(default_factory=LogOptions)
