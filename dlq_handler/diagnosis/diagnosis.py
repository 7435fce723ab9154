"""A diagnosis: what is wrong with one thing, whose it is, since when, how that is known, and what to do. Pure.

The same for the dashboard, the command line and the API. Its sentence is an observation's, so that whoever
asks in another way reads the same words.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.diagnosis import doctor_broker_lines, doctor_database_lines, doctor_lines
from dlq_handler.diagnosis.observation import Component, Health, Looked, Observation

RUNBOOK = "docs/runbook.md"
CONFIG_SHOW = "dlq-handler config show"

# Ours alone: what only a diagnosis looks at.
GATE = Looked(Component.DLQ_HANDLER, "gate")
BRAKE = Looked(Component.DLQ_HANDLER, "brake")
SHADOW = Looked(Component.DLQ_HANDLER, "shadow")
MONITOR = Looked(Component.DLQ_HANDLER, "monitor")
ANNOUNCING = Looked(Component.DLQ_HANDLER, "announcing")
# One check; its part says whose services are meant: the executor among others, or workers only.
EXECUTOR_SERVICES = Looked(Component.EXECUTOR, "services")
WORKER_SERVICES = Looked(Component.WORKERS, "services")
WORKER_GONE = Looked(Component.WORKERS, "worker gone")
WORKER_HUNG = Looked(Component.WORKERS, "worker hung")
WORKER_QUEUE = Looked(Component.WORKERS, "worker queue")
WORKER_BACKLOG = Looked(Component.WORKERS, "worker backlog")
UNUSABLE_LETTERS = Looked(Component.SENDERS, "unusable letters")
ATTUNES_MONITOR = Looked(Component.EXECUTOR, "attune monitor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One check, with the command that shows more and the page that explains it."""

    looked: Looked
    headline: str
    """The problem as a short sentence, for the top of a page and the first line of an answer."""
    command: str
    anchor: str
    slides: bool = False
    """It is dated by the oldest that waits now, and that is another one with every look: it is older than it says."""

    @property
    def name(self) -> str:
        return self.looked.check

    @property
    def page(self) -> str:
        return f"{RUNBOOK}#{self.anchor}"


# The worst first, and causes before what they cause: without a database nothing else matters, and shadow mode is
# somebody's wish.
KINDS = (
    Kind(
        looked=doctor_database_lines.DATABASE,
        headline="The database is unreachable",
        command="dlq-handler doctor",
        anchor="database-away-or-slow",
    ),
    Kind(
        looked=doctor_broker_lines.BROKER,
        headline="The broker is unreachable",
        command="dlq-handler doctor",
        anchor="broker-away",
    ),
    Kind(
        looked=doctor_database_lines.OWN_TABLES,
        headline="The tables of dlq-handler do not fit this version",
        command="dlq-handler migrate",
        anchor="own-tables-outdated",
    ),
    Kind(
        looked=doctor_database_lines.DATABASE_RIGHTS,
        headline="Database rights are missing",
        command="dlq-handler grants",
        anchor="rights-missing",
    ),
    Kind(
        looked=GATE, headline="The safety gate is closed", command="dlq-handler doctor", anchor="gate-closed"
    ),
    Kind(
        looked=BRAKE,
        headline="The brake (circuit breaker) is tripped",
        command="dlq-handler brake status",
        anchor="brake-tripped",
    ),
    Kind(
        looked=doctor_broker_lines.SIDECAR,
        headline="No replica of dlq-handler takes dead letters",
        command="dlq-handler doctor",
        anchor="dlq-not-processed",
    ),
    Kind(
        looked=doctor_broker_lines.ALARMS,
        headline="The broker accepts no messages",
        command="rabbitmqctl list_alarms",
        anchor="broker-alarm",
    ),
    Kind(
        looked=doctor_broker_lines.TOPOLOGY,
        headline="A dead-letter route is broken",
        command="dlq-handler topology check",
        anchor="topology-hole",
    ),
    Kind(
        looked=doctor_lines.CANARY,
        headline="Canary messages do not arrive",
        command="dlq-handler topology check",
        anchor="canary-lost",
    ),
    Kind(
        looked=doctor_broker_lines.OTHER_CONSUMERS,
        headline="Another consumer takes dead letters",
        command="dlq-handler doctor",
        anchor="other-consumer",
    ),
    Kind(
        looked=EXECUTOR_SERVICES,
        headline="Attune's services must be restarted",
        command="dlq-handler workers list",
        anchor="services-without-consumers",
    ),
    Kind(
        looked=WORKER_SERVICES,
        headline="Workers must be restarted",
        command="dlq-handler workers list",
        anchor="services-without-consumers",
    ),
    Kind(
        looked=doctor_database_lines.WORKERS,
        headline="No worker is available",
        command="dlq-handler workers list",
        anchor="no-workers",
    ),
    Kind(
        looked=WORKER_GONE,
        headline="A worker is unavailable",
        command="dlq-handler workers list",
        anchor="worker-gone",
    ),
    Kind(
        looked=WORKER_HUNG,
        headline="A worker hangs",
        command="dlq-handler workers list",
        anchor="worker-hung",
        slides=True,
    ),
    Kind(
        looked=WORKER_QUEUE,
        headline="A worker does not consume its queue",
        command="dlq-handler workers list",
        anchor="worker-queue-without-consumer",
    ),
    Kind(
        looked=WORKER_BACKLOG,
        headline="A worker is slower than the TTL of its queue",
        command="dlq-handler workers list",
        anchor="worker-backlog",
        slides=True,
    ),
    Kind(
        looked=doctor_broker_lines.COMPLETIONS,
        headline="Completion events are not consumed",
        command="dlq-handler doctor",
        anchor="completions-not-consumed",
    ),
    Kind(
        looked=doctor_broker_lines.REQUESTS,
        headline="Scheduling requests are not consumed",
        command="dlq-handler doctor",
        anchor="requests-not-consumed",
    ),
    Kind(
        looked=ANNOUNCING,
        headline="Completion events are not published",
        command="dlq-handler doctor",
        anchor="notices-not-sent",
        slides=True,
    ),
    Kind(
        looked=MONITOR,
        headline="No replica runs the timeout monitor",
        command="dlq-handler doctor",
        anchor="monitor-without-leader",
    ),
    Kind(
        looked=UNUSABLE_LETTERS,
        headline="Unusable dead letters arrive",
        command="dlq-handler letters list --outcome unreadable",
        anchor="unusable-letters",
        slides=True,
    ),
    Kind(
        looked=ATTUNES_MONITOR,
        headline="Attune's own timeout monitor is on",
        command="dlq-handler doctor",
        anchor="attunes-monitor-is-on",
    ),
    Kind(looked=SHADOW, headline="Shadow mode (dry run) is on", command=CONFIG_SHOW, anchor="shadow-mode"),
)

SLIDING = frozenset(kind.name for kind in KINDS if kind.slides)

_PLACE = {kind.looked: place for place, kind in enumerate(KINDS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    component: Component
    kind: str
    """Stable words, for programs and links."""
    health: Health
    sentence: str
    since: datetime | None
    """By the database's clock; None: not known, or nothing is wrong."""
    evidence: tuple[str, ...]
    next_step: str | None
    """None only when it is ok."""
    command: str
    """What to type to see more of it, or to repair it."""
    runbook: str
    headline: str = ""
    """A short sentence in plain English without its full stop, so that a time can follow it."""
    about: str = ""
    """Whom, where the kind alone does not say it: ids of workers, "7 8". Its numbers change by themselves; this only
    when it is another problem. One text, so that what is on record reads back as the same.
    """

    @property
    def subject(self) -> str:
        """Whose it is and what was looked at, each once: "us: brake", "database"."""
        return (
            self.component.value
            if self.kind == self.component.value
            else f"{self.component.value}: {self.kind}"
        )

    @property
    def said(self) -> str:
        """The sentence behind its subject: an error of a driver names the part by itself."""
        return self.sentence.removeprefix(f"{self.component.value}: ")


def page_of(seen: Observation) -> str | None:
    """Where the runbook explains it; None for what is looked at only before the first start."""
    place = _PLACE.get(Looked(seen.component, seen.check))
    return None if place is None else KINDS[place].page


def diagnosed(
    seen: Observation,
    *,
    since: datetime | None = None,
    evidence: Iterable[str] = (),
    command: str | None = None,
    about: Iterable[int] = (),
) -> Diagnosis:
    """The observation, with all that a person on call asks next. `command`: a better one than the kind's. `about`: ids
    of the workers that it is about.
    """
    kind = KINDS[_PLACE[Looked(seen.component, seen.check)]]
    return Diagnosis(
        component=seen.component,
        kind=kind.name,
        health=seen.health,
        sentence=seen.what,
        since=since if seen.health is Health.PROBLEM else None,
        evidence=(*evidence, *seen.notes),
        next_step=seen.fix,
        command=command or kind.command,
        runbook=kind.page,
        headline=_headline(seen, kind),
        about=" ".join(map(str, sorted(about))),
    )


def _headline(seen: Observation, kind: Kind) -> str:
    match seen.health:
        case Health.PROBLEM:
            return seen.headline or kind.headline
        case Health.UNKNOWN:
            return f"The result of the check “{kind.name}” is unknown"
        case Health.OK:
            return f"The check “{kind.name}” found no problem"


def in_order(diagnoses: Iterable[Diagnosis]) -> tuple[Diagnosis, ...]:
    """The worst first."""
    healths = list(Health)
    names = {kind.name: place for place, kind in enumerate(KINDS)}
    return tuple(sorted(diagnoses, key=lambda one: (healths.index(one.health), names[one.kind])))


def conclusion_of(diagnoses: Iterable[Diagnosis]) -> Health:
    """The worst of them. Who diagnosed nothing cannot tell."""
    seen = {one.health for one in diagnoses}
    return next((health for health in Health if health in seen), Health.UNKNOWN)
