"""The section `dlq_handler:`, which is ours alone. A key that is not here is an error."""

from typing import Annotated, Literal

from pydantic import Field

from dlq_handler.options import OwnSection, SchemaName, Seconds
from dlq_handler.settings.backstop import Brake, Gate, Monitor, Shadow
from dlq_handler.settings.canary import Canary
from dlq_handler.settings.intake import LARGEST_PREFETCH, Batch, Intake, Pause, Topology, WorkerWatch
from dlq_handler.settings.servers import Broker, DatabaseUse, Outbox, Retention
from dlq_handler.settings.ui import Ui


class Http(OwnSection):
    """Where health, readiness and metrics are served."""

    host: Annotated[str, Field(min_length=1)] = Field(
        default="0.0.0.0",  # noqa: S104  a sidecar is probed from outside its container
        description="Address to listen on; 127.0.0.1 hides it from probes of other hosts.",
    )
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(
        default=9464,
        description="Port to listen on; 0 takes any free one, which the log then names.",
    )


class Grace(OwnSection):
    """How much time is allowed beyond what the rule says."""

    shutdown_seconds: Annotated[Seconds, Field(ge=0, le=3600)] = Field(
        default=30,
        description=(
            "Seconds between SIGTERM and the end: to finish the batch and flush the outbox; keep it below "
            "what the container runtime allows, or it kills us first, which repeats work but loses nothing."
        ),
    )
    horizon_seconds: Annotated[Seconds, Field(ge=0, le=86_400)] = Field(
        default=30,
        description=(
            "Seconds beyond the queue's TTL before the monitor takes an execution for stale: a message that "
            "expired must have the time to come to us as a letter."
        ),
    )


class Startup(OwnSection):
    """How the process starts."""

    wait_seconds: Annotated[Seconds, Field(ge=0, le=86_400)] = Field(
        default=60,
        description=(
            "Seconds to wait for broker and database at start; then the process ends with exit code 69."
        ),
    )


class Log(OwnSection):
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

    instance_name: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
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
            "memory, with `intake.max_bytes`."
        ),
    )
    intake: Intake = Field(default_factory=Intake)
    batch: Batch = Field(default_factory=Batch)
    worker: WorkerWatch = Field(default_factory=WorkerWatch)
    topology: Topology = Field(default_factory=Topology)
    pause: Pause = Field(default_factory=Pause)
    monitor: Monitor = Field(default_factory=Monitor)
    brake: Brake = Field(default_factory=Brake)
    gate: Gate = Field(default_factory=Gate)
    shadow: Shadow = Field(default_factory=Shadow)
    canary: Canary = Field(default_factory=Canary)
    broker: Broker = Field(default_factory=Broker)
    database: DatabaseUse = Field(default_factory=DatabaseUse)
    outbox: Outbox = Field(default_factory=Outbox)
    retention: Retention = Field(default_factory=Retention)
    http: Http = Field(default_factory=Http)
    ui: Ui = Field(default_factory=Ui)
    grace: Grace = Field(default_factory=Grace)
    startup: Startup = Field(default_factory=Startup)
    log: Log = Field(default_factory=Log)
