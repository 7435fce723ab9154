"""The checks: for each its component, its headline, and where the runbook explains it. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Component(StrEnum):
    """The owner of a diagnosis."""

    DLQ_HANDLER = "dlq-handler"
    BROKER = "broker"
    DATABASE = "database"
    WORKERS = "workers"
    SENDERS = "senders"
    """Programs that publish messages which are dead-lettered."""
    EXECUTOR = "executor"


class Check(StrEnum):
    """Stable names, for programs and links. In order: the worst first, and a cause before its consequences."""

    SETTINGS = "settings"
    DATABASE = "database"
    BROKER = "broker"
    HOST_TABLES = "host tables"
    OWN_TABLES = "own tables"
    DATABASE_RIGHTS = "database rights"
    BROKER_RIGHTS = "broker rights"
    SAFETY_GATE = "safety gate"
    BRAKE = "brake"
    REPLICAS = "replicas"
    BROKER_ALARM = "broker alarm"
    TOPOLOGY = "topology"
    CANARY = "canary"
    OTHER_CONSUMERS = "other consumers"
    SERVICES = "services"
    WORKERS = "workers"
    WORKER_UNAVAILABLE = "worker unavailable"
    WORKER_HUNG = "worker hung"
    WORKER_QUEUE = "worker queue"
    WORKER_BACKLOG = "worker backlog"
    SYSTEM_QUEUES = "system queues"
    RETURNED_WORKERS = "returned workers"
    COMPLETIONS = "completions"
    REQUESTS = "requests"
    PUBLISHING = "publishing"
    TIMEOUT_MONITOR = "timeout monitor"
    FLOWS = "flows"
    LEAKED_QUEUES = "leaked queues"
    ORPHANED_QUEUES = "orphaned queues"
    UNUSABLE_LETTERS = "unusable letters"
    ATTUNE_MONITOR = "attune monitor"
    CLOCK = "clock"
    BROKER_CLOCK = "broker clock"
    WORKER_CLOCKS = "worker clocks"
    WORKER_RESTARTS = "worker restarts"
    SHADOW_MODE = "shadow mode"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInfo:
    """What is the same in every diagnosis of a check."""

    component: Component
    headline: str
    """The problem as a short sentence without its full stop, so that a time can follow it."""
    command: str = "dlq-handler doctor"
    """Shows more about the problem, or corrects it."""
    anchor: str | None = None
    """The section of the runbook. None: none, the check is part of `doctor` alone."""
    is_required: bool = False
    """A dead letter can only be processed if this is in order: it decides the exit code of `doctor`."""
    is_dated_by_oldest_item: bool = False
    """It is dated by the oldest item that waits now, which changes with every observation: the problem is older."""


_WORKERS_LIST = "dlq-handler workers list"
_TOPOLOGY_CHECK = "dlq-handler topology check"
_FLOWS_LIST = "dlq-handler flows list"

INFOS: Mapping[Check, CheckInfo] = {
    Check.SETTINGS: CheckInfo(
        component=Component.DLQ_HANDLER,
        headline="The settings cannot be used",
        command="dlq-handler config check",
        is_required=True,
    ),
    Check.DATABASE: CheckInfo(
        component=Component.DATABASE,
        headline="The database is unreachable",
        anchor="database-unreachable-or-slow",
        is_required=True,
    ),
    Check.BROKER: CheckInfo(
        component=Component.BROKER,
        headline="The broker is unreachable",
        anchor="broker-unreachable",
        is_required=True,
    ),
    Check.HOST_TABLES: CheckInfo(
        component=Component.DATABASE, headline="Tables of Attune are missing", is_required=True
    ),
    Check.OWN_TABLES: CheckInfo(
        component=Component.DATABASE,
        headline="The tables of dlq-handler do not fit this version",
        command="dlq-handler migrate",
        anchor="own-tables-outdated",
        is_required=True,
    ),
    Check.DATABASE_RIGHTS: CheckInfo(
        component=Component.DATABASE,
        headline="Database rights are missing",
        command="dlq-handler grants",
        anchor="rights-missing",
        is_required=True,
    ),
    Check.BROKER_RIGHTS: CheckInfo(
        component=Component.BROKER,
        headline="Broker rights are missing",
        command="dlq-handler grants",
        is_required=True,
    ),
    Check.SAFETY_GATE: CheckInfo(
        component=Component.DLQ_HANDLER, headline="The safety gate is closed", anchor="gate-closed"
    ),
    Check.BRAKE: CheckInfo(
        component=Component.DLQ_HANDLER,
        headline="The brake (circuit breaker) is tripped",
        command="dlq-handler brake status",
        anchor="brake-tripped",
    ),
    Check.REPLICAS: CheckInfo(
        component=Component.DLQ_HANDLER,
        headline="No replica of dlq-handler takes dead letters",
        anchor="dlq-not-processed",
        is_required=True,
    ),
    Check.BROKER_ALARM: CheckInfo(
        component=Component.BROKER,
        headline="The broker accepts no messages",
        command="rabbitmqctl list_alarms",
        anchor="broker-alarm",
    ),
    Check.TOPOLOGY: CheckInfo(
        component=Component.BROKER,
        headline="A dead-letter route is broken",
        command=_TOPOLOGY_CHECK,
        anchor="broken-route",
        is_required=True,
    ),
    Check.CANARY: CheckInfo(
        component=Component.BROKER,
        headline="Canary messages do not arrive",
        command=_TOPOLOGY_CHECK,
        anchor="canary-lost",
        is_required=True,
    ),
    Check.OTHER_CONSUMERS: CheckInfo(
        component=Component.BROKER,
        headline="Another consumer takes dead letters",
        anchor="other-consumer",
        is_required=True,
    ),
    Check.SERVICES: CheckInfo(
        component=Component.WORKERS,
        headline="Attune's services must be restarted",
        command=_WORKERS_LIST,
        anchor="services-without-consumers",
    ),
    Check.WORKERS: CheckInfo(
        component=Component.WORKERS,
        headline="No worker is available",
        command=_WORKERS_LIST,
        anchor="no-workers",
        is_required=True,
    ),
    Check.WORKER_UNAVAILABLE: CheckInfo(
        component=Component.WORKERS,
        headline="A worker is unavailable",
        command=_WORKERS_LIST,
        anchor="worker-unavailable",
    ),
    Check.WORKER_HUNG: CheckInfo(
        component=Component.WORKERS,
        headline="A worker hangs",
        command=_WORKERS_LIST,
        anchor="worker-hung",
        is_dated_by_oldest_item=True,
    ),
    Check.WORKER_QUEUE: CheckInfo(
        component=Component.WORKERS,
        headline="A worker does not consume its queue",
        command=_WORKERS_LIST,
        anchor="worker-queue-without-consumer",
    ),
    Check.WORKER_BACKLOG: CheckInfo(
        component=Component.WORKERS,
        headline="A worker is slower than the TTL of its queue",
        command=_WORKERS_LIST,
        anchor="worker-backlog",
        is_dated_by_oldest_item=True,
    ),
    Check.SYSTEM_QUEUES: CheckInfo(
        component=Component.EXECUTOR,
        headline="Queues of Attune's services are missing",
        command="dlq-handler queues list",
        anchor="system-queue-missing",
    ),
    Check.RETURNED_WORKERS: CheckInfo(
        component=Component.WORKERS,
        headline="A worker returned and does not consume",
        command=_WORKERS_LIST,
        anchor="worker-returned-during-a-stop",
    ),
    Check.COMPLETIONS: CheckInfo(
        component=Component.EXECUTOR,
        headline="Completion events are not consumed",
        anchor="completions-not-consumed",
        is_required=True,
    ),
    Check.REQUESTS: CheckInfo(
        component=Component.EXECUTOR,
        headline="Scheduling requests are not consumed",
        anchor="requests-not-consumed",
        is_required=True,
    ),
    Check.PUBLISHING: CheckInfo(
        component=Component.DLQ_HANDLER,
        headline="Completion events are not published",
        anchor="completion-events-not-published",
        is_dated_by_oldest_item=True,
    ),
    Check.TIMEOUT_MONITOR: CheckInfo(
        component=Component.DLQ_HANDLER,
        headline="No replica runs the timeout monitor",
        anchor="monitor-without-leader",
    ),
    Check.FLOWS: CheckInfo(
        component=Component.DLQ_HANDLER,
        headline="The stop of a flow waits",
        command=_FLOWS_LIST,
        anchor="a-stop-waits",
        is_dated_by_oldest_item=True,
    ),
    Check.LEAKED_QUEUES: CheckInfo(
        component=Component.BROKER,
        headline="Queues of stopped flows still exist",
        command=_FLOWS_LIST,
        anchor="leaked-queues",
        is_dated_by_oldest_item=True,
    ),
    Check.ORPHANED_QUEUES: CheckInfo(
        component=Component.BROKER,
        headline="Queues of workers that are gone exist",
        command="dlq-handler queues orphans",
        anchor="orphaned-queues",
    ),
    Check.UNUSABLE_LETTERS: CheckInfo(
        component=Component.SENDERS,
        headline="Unusable dead letters arrive",
        command="dlq-handler letters list --outcome unreadable",
        anchor="unusable-letters",
        is_dated_by_oldest_item=True,
    ),
    Check.ATTUNE_MONITOR: CheckInfo(
        component=Component.EXECUTOR,
        headline="Attune's own timeout monitor is on",
        anchor="attunes-monitor-is-on",
    ),
    Check.CLOCK: CheckInfo(
        component=Component.DLQ_HANDLER, headline="The clock of this machine is wrong", is_required=True
    ),
    Check.BROKER_CLOCK: CheckInfo(
        component=Component.BROKER, headline="The clock of the broker is wrong", is_required=True
    ),
    Check.WORKER_CLOCKS: CheckInfo(
        component=Component.WORKERS, headline="Clocks of workers are wrong", is_required=True
    ),
    Check.WORKER_RESTARTS: CheckInfo(
        component=Component.WORKERS, headline="Restarts of workers are not detected", is_required=True
    ),
    Check.SHADOW_MODE: CheckInfo(
        component=Component.DLQ_HANDLER,
        headline="Shadow mode (dry run) is on",
        command="dlq-handler config show",
        anchor="shadow-mode",
    ),
}

# Of every view; the others are of `doctor` alone.
OF_EVERY_VIEW = tuple(check for check in Check if INFOS[check].anchor is not None)
