"""The result of one check. One type for `status`, `doctor`, dashboard, API and the record of the past. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dlq_handler.diagnosis.view import Unknown, UnknownCause

RUNBOOK = "docs/runbook.md"
REPAIR_FIRST = "Correct that first, then run the command again."
MANAGEMENT_ACTION = (
    "Make RabbitMQ's management API available (dlq_handler.broker.management_url), "
    "for a user with the tag 'monitoring'."
)


class Component(StrEnum):
    """The owner of a diagnosis."""

    DLQ_HANDLER = "dlq-handler"
    BROKER = "broker"
    DATABASE = "database"
    WORKERS = "workers"
    SENDERS = "senders"
    """Programs that publish messages which are dead-lettered."""
    EXECUTOR = "executor"


class Health(StrEnum):
    """The worst first."""

    PROBLEM = "problem"
    UNKNOWN = "unknown"
    OK = "ok"


# Always with the word beside it.
SIGNS = {Health.PROBLEM: "✕", Health.UNKNOWN: "?", Health.OK: "✓"}


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
    COMPLETIONS = "completions"
    REQUESTS = "requests"
    PUBLISHING = "publishing"
    TIMEOUT_MONITOR = "timeout monitor"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    check: Check
    component: Component
    health: Health
    headline: str
    """A short sentence without its full stop, so that a time can follow it."""
    explanation: str
    since: datetime | None = None
    """By the database's clock; None: unknown, or nothing is wrong."""
    evidence: tuple[str, ...] = ()
    action: str | None = None
    """None: there is nothing to do. With health ok it is a recommendation."""
    command: str
    runbook: str | None
    unknown_cause: UnknownCause | None = None
    """None unless health is unknown."""
    outcome: str | None = None
    """The outcome of most of the dead letters that the diagnosis counts; None: it counts none."""

    @property
    def is_required(self) -> bool:
        return INFOS[self.check].is_required

    @property
    def subject(self) -> str:
        """Component and check, each once: "dlq-handler: brake", "database"."""
        if self.check.value == self.component.value:
            return self.component.value
        return f"{self.component.value}: {self.check.value}"


def ok(
    check: Check, explanation: str, *, evidence: Iterable[str] = (), action: str | None = None
) -> Diagnosis:
    """With an `action` it is a recommendation: nothing is wrong, and something could be better."""
    headline = f"The check “{check.value}” found no problem"
    return _diagnosis(check, Health.OK, headline, explanation, evidence=evidence, action=action)


def problem(
    check: Check,
    explanation: str,
    action: str,
    *,
    since: datetime | None = None,
    evidence: Iterable[str] = (),
    headline: str | None = None,
    command: str | None = None,
    component: Component | None = None,
) -> Diagnosis:
    """Without `headline`, `command` and `component`: those of the check."""
    return _diagnosis(
        check,
        Health.PROBLEM,
        headline or INFOS[check].headline,
        explanation,
        since=since,
        evidence=evidence,
        action=action,
        command=command,
        component=component,
    )


def unknown(
    check: Check, fact: Unknown, action: str = REPAIR_FIRST, *, evidence: Iterable[str] = ()
) -> Diagnosis:
    headline = f"The result of the check “{check.value}” is unknown"
    return _diagnosis(
        check,
        Health.UNKNOWN,
        headline,
        fact.explanation,
        evidence=evidence,
        action=action,
        unknown_cause=fact.cause,
    )


def _diagnosis(
    check: Check,
    health: Health,
    headline: str,
    explanation: str,
    *,
    since: datetime | None = None,
    evidence: Iterable[str] = (),
    action: str | None = None,
    command: str | None = None,
    component: Component | None = None,
    unknown_cause: UnknownCause | None = None,
) -> Diagnosis:
    info = INFOS[check]
    return Diagnosis(
        check=check,
        component=component or info.component,
        health=health,
        headline=headline,
        explanation=explanation,
        since=since,
        evidence=tuple(evidence),
        action=action,
        command=command or info.command,
        runbook=None if info.anchor is None else f"{RUNBOOK}#{info.anchor}",
        unknown_cause=unknown_cause,
    )


def in_order(diagnoses: Iterable[Diagnosis]) -> tuple[Diagnosis, ...]:
    """The worst first."""
    healths, checks = list(Health), list(Check)
    return tuple(sorted(diagnoses, key=lambda one: (healths.index(one.health), checks.index(one.check))))


def conclusion_of(diagnoses: Iterable[Diagnosis]) -> Health:
    """The worst of them; unknown if there is none."""
    found = {one.health for one in diagnoses}
    return next((health for health in Health if health in found), Health.UNKNOWN)
