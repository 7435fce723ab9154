"""The section `dlq_handler:`. A key that is not here is an error."""

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
    """Time that is allowed beyond a limit."""

    shutdown_seconds: Annotated[Seconds, Field(ge=0, le=3600)] = Field(
        default=30,
        description=(
            "Maximum time between SIGTERM and the end of the process, in seconds, to finish the batch and flush "
            "the outbox. Keep it below the limit of the container runtime: a process that is killed repeats work,"
            " but loses nothing."
        ),
    )
    after_ttl_seconds: Annotated[Seconds, Field(ge=0, le=86_400)] = Field(
        default=30,
        description=(
            "Time beyond the queue's TTL before the timeout monitor treats an execution as stale, in seconds: the"
            " dead letter of an expired message needs time to arrive."
        ),
    )


class StartupOptions(OwnSection):
    """Start of the process."""

    wait_seconds: Annotated[Seconds, Field(ge=0, le=86_400)] = Field(
        default=60,
        description=(
            "Maximum time to wait for broker and database at start, in seconds. Then the process ends with exit "
            "code 69."
        ),
    )


class LogOptions(OwnSection):
    """Logging."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="Lowest level that is logged. Above info, single decisions are not logged.",
    )
    format: Literal["auto", "json", "console"] = Field(
        default="auto",
        description=(
            "`json`: one object per line. `console`: for people. `auto`: console on a terminal, else json."
        ),
    )


class DlqHandler(OwnSection):
    """Settings that only dlq-handler reads."""

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
        description="Schema of dlq-handler's tables, in Attune's database. `migrate` and `run` create it.",
    )
    prefetch: Annotated[int, Field(ge=2, le=LARGEST_PREFETCH)] | None = Field(
        default=None,
        description=(
            "Number of dead letters that the broker delivers before it waits for acknowledgements. At least 2 x "
            "`batch.size`, so that one batch fills while another is written; null means 3 x, because two are "
            "written at once. Bounds memory, with `intake.buffer_bytes`."
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
