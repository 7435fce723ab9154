"""The result of one check. One type for `status`, `doctor`, dashboard, API and the record of the past. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dlq_handler.diagnosis.checks import INFOS, Check, Component
from dlq_handler.diagnosis.view import Unknown, UnknownCause

RUNBOOK = "docs/runbook.md"
REPAIR_FIRST = "Correct that first, then run the command again."
MANAGEMENT_ACTION = (
    "Make RabbitMQ's management API available (dlq_handler.broker.management_url), "
    "for a user with the tag 'monitoring'."
)


class Health(StrEnum):
    """The worst first."""

    PROBLEM = "problem"
    UNKNOWN = "unknown"
    OK = "ok"


# Always with the word beside it.
SIGNS = {Health.PROBLEM: "✕", Health.UNKNOWN: "?", Health.OK: "✓"}


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
