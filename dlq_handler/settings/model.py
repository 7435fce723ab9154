"""The settings as one frozen object, and the values that follow from them where a key was left empty.

`Settings()` reads nothing from anywhere: `load` decides on files and variables.
"""

import os
import socket
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal
from uuid import uuid4

from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from dlq_handler.broker.options import CONSUMER_TAG_PREFIX, BrokerOptions, management_url_beside
from dlq_handler.database.options import DatabaseOptions
from dlq_handler.dead_letters.options import LARGEST_PREFETCH, BatchOptions, IntakeOptions, PauseOptions
from dlq_handler.endings.options import OutboxOptions, RecordOptions, ShadowOptions
from dlq_handler.explain.options import ExplainPolicy
from dlq_handler.history.options import RetentionOptions, RetentionPolicy
from dlq_handler.host.options import HostDatabase, HostExecutor, HostMessageQueue, HostWorker
from dlq_handler.host.rights import Feature
from dlq_handler.host.worker import AvailabilityPolicy, WorkerQueueNames
from dlq_handler.lifecycle.flow_blueprint import WORKER_BLUEPRINT, FlowBlueprint, worker_blueprint
from dlq_handler.lifecycle.known_queues import QueueNames
from dlq_handler.lifecycle.options import Blueprints, LifecycleOptions
from dlq_handler.options import OwnSection, SchemaName, Seconds, SecretUrl
from dlq_handler.safety.options import BrakeOptions, GateOptions
from dlq_handler.timeouts.case import StaleLimits
from dlq_handler.timeouts.options import MonitorOptions
from dlq_handler.topology.blueprint import Blueprint, ShadowLimits
from dlq_handler.topology.canary import CanaryPlan
from dlq_handler.topology.drift import Expectation
from dlq_handler.topology.options import CanaryOptions, TopologyOptions
from dlq_handler.web.options import HttpOptions, UiOptions
from dlq_handler.workers.options import WorkerOptions


class GraceOptions(OwnSection):
    """Time that is allowed beyond a limit."""

    shutdown_seconds: Annotated[Seconds, Field(ge=0, le=3600)] = 30
    """Maximum time between SIGTERM and the end of the process, in seconds, to finish the batch and flush the outbox.
    Keep it below the limit of the container runtime: a process that is killed repeats work, but loses nothing."""
    after_ttl_seconds: Annotated[Seconds, Field(ge=0, le=86_400)] = 30
    """Time beyond the queue's TTL before the timeout monitor treats an execution as stale, in seconds: the dead letter
    of an expired message needs time to arrive."""


class StartupOptions(OwnSection):
    """Start of the process."""

    wait_seconds: Annotated[Seconds, Field(ge=0, le=86_400)] = 60
    """Maximum time to wait for broker and database at start, in seconds. Then the process ends with exit code 69."""


class LogOptions(OwnSection):
    """Logging."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged. Above info, single decisions are not logged."""
    format: Literal["auto", "json", "console"] = "auto"
    """`json`: one object per line. `console`: for people. `auto`: console on a terminal, else json."""


class DlqHandler(OwnSection):
    """Settings that only dlq-handler reads."""

    replica_name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Name of this replica in logs, leases and as AMQP connection name; null means host name and process id."""
    schema_name: SchemaName = Field(alias="schema", default="dlq_handler")
    """Schema of dlq-handler's tables, in Attune's database. `migrate` and `run` create it."""
    prefetch: Annotated[int, Field(ge=2, le=LARGEST_PREFETCH)] | None = None
    """Number of dead letters that the broker delivers before it waits for acknowledgements. At least 2 x `batch.size`,
    so that one batch fills while another is written; null means 3 x, because two are written at once. Bounds memory,
    with `intake.buffer_bytes`."""
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
    lifecycle: LifecycleOptions = Field(default_factory=LifecycleOptions)
    blueprints: Blueprints = Field(default_factory=dict)
    """Blueprints of flows, by name, besides `worker`, which is shipped and may be replaced. `{param}` in the name of a
    queue or in a key is replaced by the value of a parameter. A queue under `flow` has a parameter in its name and is
    deleted when the flow stops; one under `shared` has none and is never deleted. `contents: archive` records what is
    left in the queue, `decide` (the default) decides it as dead letters. In a variable: a JSON object."""
    broker: BrokerOptions = Field(default_factory=BrokerOptions)
    database: DatabaseOptions = Field(default_factory=DatabaseOptions)
    outbox: OutboxOptions = Field(default_factory=OutboxOptions)
    retention: RetentionOptions = Field(default_factory=RetentionOptions)
    http: HttpOptions = Field(default_factory=HttpOptions)
    ui: UiOptions = Field(default_factory=UiOptions)
    grace: GraceOptions = Field(default_factory=GraceOptions)
    startup: StartupOptions = Field(default_factory=StartupOptions)
    log: LogOptions = Field(default_factory=LogOptions)


class Settings(BaseSettings):
    """The sections shared with Attune, and dlq-handler's own."""

    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", hide_input_in_errors=True, validate_default=True
    )

    sources: ClassVar[tuple[PydanticBaseSettingsSource, ...]] = ()

    database: HostDatabase = Field(default_factory=HostDatabase)
    message_queue: HostMessageQueue = Field(default_factory=HostMessageQueue)
    executor: HostExecutor = Field(default_factory=HostExecutor)
    worker: HostWorker = Field(default_factory=HostWorker)
    dlq_handler: DlqHandler = Field(default_factory=DlqHandler)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  the signature is pydantic-settings'
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003  the signature is pydantic-settings'
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  the signature is pydantic-settings'
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  the signature is pydantic-settings'
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # pydantic-settings' own choice would pick up variables named DATABASE or WORKER.
        return cls.sources or (init_settings,)

    @property
    def replica(self) -> str:
        """Name of this replica: host name and process id unless one was given."""
        return self.dlq_handler.replica_name or f"{socket.gethostname()}-{os.getpid()}"

    def new_lease_holder(self) -> str:
        """Never the same for two processes, even if the same instance name was given to both."""
        return f"{self.replica} {uuid4()}"

    def new_consumer_tag(self) -> str:
        """Never the same for two processes: the intake watch finds its own consumer by it."""
        return f"{CONSUMER_TAG_PREFIX}{self.replica}.{uuid4().hex[:8]}"

    @property
    def is_shadow(self) -> bool:
        return self.dlq_handler.shadow.enabled

    @property
    def prefetch(self) -> int:
        own = self.dlq_handler
        return 3 * own.batch.size if own.prefetch is None else own.prefetch

    @property
    def broker_urls(self) -> tuple[SecretUrl, ...]:
        return self.dlq_handler.broker.urls or (self.message_queue.url,)

    @property
    def management_url(self) -> SecretUrl:
        return management_url_beside(self.broker_urls[0], self.dlq_handler.broker.management_url)

    @property
    def deadline_seconds(self) -> float:
        """Before this age no scheduled execution is stale: its message may still be in the worker's queue."""
        return max(float(self.executor.scheduled_timeout), self.least_deadline_seconds)

    @property
    def least_deadline_seconds(self) -> float:
        ttl_seconds = self.message_queue.rabbitmq.worker_queue_ttl_ms / 1000
        return ttl_seconds + self.dlq_handler.grace.after_ttl_seconds

    @property
    def worker_unavailable_after_seconds(self) -> float:
        given = self.dlq_handler.worker.unavailable_after_seconds
        return max(90.0, 3.0 * self.worker.heartbeat_interval) if given is None else given

    @property
    def availability(self) -> AvailabilityPolicy:
        return AvailabilityPolicy(
            unavailable_after_seconds=self.worker_unavailable_after_seconds,
            late_after_seconds=3.0 * self.worker.heartbeat_interval,
        )

    @property
    def stale_limits(self) -> StaleLimits:
        return StaleLimits(
            monitor=self.dlq_handler.monitor,
            deadline_seconds=self.deadline_seconds,
            after_ttl_seconds=self.dlq_handler.grace.after_ttl_seconds,
            availability=self.availability,
            run_limit_seconds=self.dlq_handler.worker.run_limit_seconds,
        )

    @property
    def lease(self) -> str:
        # Another lease in shadow mode: a replica that changes nothing must not keep the others from working.
        return "shadow leader" if self.is_shadow else "leader"

    @property
    def worker_queues(self) -> WorkerQueueNames:
        worker = self.dlq_handler.worker
        return WorkerQueueNames(
            queue_pattern=worker.queue_pattern, routing_key_pattern=worker.routing_key_pattern
        )

    @property
    def record_options(self) -> RecordOptions:
        return RecordOptions(
            replica=self.replica,
            destination=self.dlq_handler.outbox.destination,
            names=self.worker_queues,
            is_shadow=self.is_shadow,
        )

    @property
    def blueprint(self) -> Blueprint:
        """The exchanges, queues and bindings that must exist."""
        dead_letter, shadow = self.message_queue.rabbitmq.dead_letter, self.dlq_handler.shadow
        return Blueprint(
            dead_letter_exchange=dead_letter.exchange,
            intake_queue=shadow.queue if shadow.enabled else self.dlq_handler.intake.queue,
            has_intake=dead_letter.enabled,
            shadow=ShadowLimits(max_letters=shadow.max_dead_letters, ttl_ms=shadow.ttl_ms)
            if shadow.enabled
            else None,
            executions_exchange=self.dlq_handler.outbox.exchange,
            workers=self.worker_queues,
        )

    @property
    def features(self) -> frozenset[Feature]:
        """Those that are enabled and need more rights."""
        return frozenset({Feature.LIFECYCLE} if self.dlq_handler.lifecycle.enabled else ())

    @property
    def flow_blueprints(self) -> Mapping[str, FlowBlueprint]:
        """Those of the settings, and the shipped one unless it is replaced."""
        given = {name: one.as_blueprint(name) for name, one in self.dlq_handler.blueprints.items()}
        return {WORKER_BLUEPRINT: worker_blueprint(self.worker_queues), **given}

    @property
    def queue_names(self) -> QueueNames:
        """The queues of host and dlq-handler, by name."""
        canary, blueprint = self.dlq_handler.canary, self.blueprint
        plan = CanaryPlan(dead_letter_exchange=blueprint.dead_letter_exchange, ttl_ms=canary.ttl_ms)
        return QueueNames(
            blueprint=blueprint,
            shadow_queue=self.dlq_handler.shadow.queue,
            canary=plan.queue_arguments if canary.enabled else None,
        )

    @property
    def expectation(self) -> Expectation:
        """What a check of the broker compares it with, but for the ids of the workers."""
        return Expectation(
            blueprint=self.blueprint,
            ttl_ms=self.message_queue.rabbitmq.worker_queue_ttl_ms,
            own_consumer_tag_prefix=CONSUMER_TAG_PREFIX,
        )

    @property
    def retention(self) -> RetentionPolicy:
        retention = self.dlq_handler.retention
        return RetentionPolicy(
            resolved_seconds=self.message_queue.rabbitmq.dead_letter.ttl_ms / 1000,
            unresolved_seconds=retention.unresolved_days * 86_400,
            interval_seconds=retention.interval_seconds,
            history_seconds=retention.history_days * 86_400,
        )

    @property
    def explain_policy(self) -> ExplainPolicy:
        return ExplainPolicy(
            limits=self.stale_limits,
            brake=self.dlq_handler.brake,
            names=self.worker_queues,
            lease=self.lease,
            is_monitored=self.dlq_handler.monitor.enabled,
            is_shadow=self.is_shadow,
        )


def derived_values(settings: Settings) -> dict[str, object]:
    """The value in force, by key, where it is not the one that was given or where none was given.

    `replica_name` is not here: only the process knows it.
    """
    return {
        "dlq_handler.prefetch": settings.prefetch,
        "dlq_handler.broker.urls": settings.broker_urls,
        "dlq_handler.broker.management_url": settings.management_url,
        "dlq_handler.worker.unavailable_after_seconds": settings.worker_unavailable_after_seconds,
        "executor.scheduled_timeout": settings.deadline_seconds,
    }
