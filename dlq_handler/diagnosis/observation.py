"""An observation: one thing that was looked at, whether it is well, and what to do if it is not. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum


class Component(StrEnum):
    """Whose it is."""

    DLQ_HANDLER = "dlq-handler"
    BROKER = "broker"
    DATABASE = "database"
    WORKERS = "workers"
    SENDERS = "senders"
    """Whoever publishes what dies."""
    EXECUTOR = "executor"


class Health(StrEnum):
    """The worst first."""

    PROBLEM = "problem"
    UNKNOWN = "unknown"
    OK = "ok"


# Always with the word beside it.
SIGNS = {Health.PROBLEM: "✕", Health.UNKNOWN: "?", Health.OK: "✓"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    component: Component
    check: str
    """What was looked at: stable words, for programs and for the page that explains them."""
    health: Health
    what: str
    """What is, in one sentence."""
    fix: str | None = None
    """What to do; None only when it is ok."""
    notes: tuple[str, ...] = ()
    """Worth knowing, and no reason to worry."""
    headline: str = ""
    """What is wrong as a short sentence, without its full stop. Empty: the usual one for this check."""


@dataclass(frozen=True, slots=True)
class Looked:
    """Makes the observations of one check."""

    component: Component
    check: str

    def ok(self, what: str, *, notes: Iterable[str] = ()) -> Observation:
        return Observation(
            component=self.component, check=self.check, health=Health.OK, what=what, notes=tuple(notes)
        )

    def problem(self, what: str, fix: str, *, notes: Iterable[str] = (), headline: str = "") -> Observation:
        return replace(self._ill(Health.PROBLEM, what, fix, notes), headline=headline)

    def unknown(self, what: str, fix: str, *, notes: Iterable[str] = ()) -> Observation:
        return self._ill(Health.UNKNOWN, what, fix, notes)

    def _ill(self, health: Health, what: str, fix: str, notes: Iterable[str]) -> Observation:
        return Observation(
            component=self.component, check=self.check, health=health, what=what, fix=fix, notes=tuple(notes)
        )


def conclude(observations: Collection[Observation]) -> Health:
    """The worst of them. Who looked at nothing cannot tell."""
    seen = {observation.health for observation in observations}
    return next((health for health in Health if health in seen), Health.UNKNOWN)


def worst_first(observations: Iterable[Observation]) -> list[Observation]:
    order = list(Health)
    return sorted(observations, key=lambda observation: order.index(observation.health))
