"""The strip of five: Sidecar, Broker, Database, Workers, Announcing; each a sign, a word and one number. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlq_handler.dashboard.words import UNKNOWN, State, counted, state_of, thousands
from dlq_handler.diagnosis import doctor_broker_lines, doctor_database_lines, doctor_lines
from dlq_handler.diagnosis.diagnosis import (
    ANNOUNCING,
    BRAKE,
    GATE,
    MONITOR,
    SHADOW,
    WORKER_BACKLOG,
    WORKER_GONE,
    WORKER_HUNG,
    WORKER_QUEUE,
    WORKER_SERVICES,
    Diagnosis,
)
from dlq_handler.diagnosis.observation import Component, Health, Looked
from dlq_handler.diagnosis.view import OFF, DatabaseSeen, OutboxSeen, QueueSeen, Unknown, View
from dlq_handler.topology.decide_canary import CanaryState
from dlq_handler.workers.availability import Availability, is_history


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    component: str
    href: str
    state: State
    word: str
    number: str | None


def strip(view: View | None, diagnoses: Sequence[Diagnosis]) -> Sequence[Cell]:
    """`view` None: of the past only the diagnoses are known, so there are no numbers."""
    known = {one.kind: one for one in diagnoses}
    return (
        _cell(
            "Sidecar",
            "/#looked",
            known=known,
            words=_sidecar_words(known),
            fine="working",
            number=_replicas(view),
        ),
        _broker(view, known),
        _cell("Database", "/#looked", known=known, words=_DATABASE, fine="connected", number=_answered(view)),
        _workers(view, known),
        _cell(
            "Announcing", "/#looked", known=known, words=_ANNOUNCING, fine="working", number=_pending(view)
        ),
    )


# What is said when this is the worst of a part, in the order in which it matters.
_SIDECAR: Mapping[Looked, str] = {
    GATE: "gate closed",
    BRAKE: "brake tripped",
    doctor_broker_lines.SIDECAR: "not consuming",
    MONITOR: "no leader",
    SHADOW: "shadow mode",
}
_BROKER: Mapping[Looked, str] = {
    doctor_broker_lines.BROKER: "away",
    doctor_broker_lines.ALARMS: "alarm",
    doctor_broker_lines.TOPOLOGY: "hole",
    doctor_lines.CANARY: "canary lost",
    doctor_broker_lines.OTHER_CONSUMERS: "other consumer",
}
_ANNOUNCING: Mapping[Looked, str] = {ANNOUNCING: "stuck"}
_DATABASE: Mapping[Looked, str] = {
    doctor_database_lines.DATABASE: "away or slow",
    doctor_database_lines.OWN_TABLES: "tables outdated",
    doctor_database_lines.DATABASE_RIGHTS: "rights missing",
}


def _is_database_away(known: Mapping[str, Diagnosis]) -> bool:
    database = known.get(doctor_database_lines.DATABASE.check)
    return database is not None and database.health is Health.PROBLEM


def _sidecar_words(known: Mapping[str, Diagnosis]) -> Mapping[Looked, str]:
    """Without its database it gives every letter back: it waits, and whoever starts another one helps nobody."""
    return {**_SIDECAR, doctor_broker_lines.SIDECAR: "paused"} if _is_database_away(known) else _SIDECAR


def _broker(view: View | None, known: Mapping[str, Diagnosis]) -> Cell:
    """Canaries are on record in the database: without it nothing is known of them, and the broker answers all the
    same. Who reads "unknown" looks for a fault where there is none.
    """
    words, number = _BROKER, _canary(view)
    told = {looked: known[looked.check].health for looked in _BROKER if looked.check in known}
    answers = told.get(doctor_broker_lines.BROKER) is Health.OK
    if answers and _is_database_away(known) and told.get(doctor_lines.CANARY) is Health.UNKNOWN:
        words = {looked: word for looked, word in _BROKER.items() if looked is not doctor_lines.CANARY}
        number = f"canary {UNKNOWN}"
    return _cell("Broker", "/topology", known=known, words=words, fine="connected", number=number)


def _cell(
    component: str,
    href: str,
    *,
    known: Mapping[str, Diagnosis],
    words: Mapping[Looked, str],
    fine: str,
    number: str | None,
) -> Cell:
    found = [(known[looked.check], word) for looked, word in words.items() if looked.check in known]
    state, word = _worst(found, fine)
    return Cell(component=component, href=href, state=state, word=word, number=number)


def _worst(found: Iterable[tuple[Diagnosis, str]], fine: str) -> tuple[State, str]:
    """Never green by default: where nothing was looked at, nothing can be told."""
    seen = list(found)
    for health in (Health.PROBLEM, Health.UNKNOWN):
        for diagnosis, word in seen:
            if diagnosis.health is health:
                return state_of(diagnosis), word if health is Health.PROBLEM else "unknown"
    return (State.OK, fine) if seen else (State.UNKNOWN, "unknown")


def _replicas(view: View | None) -> str | None:
    if view is None or not isinstance(view.intake, QueueSeen) or view.intake.taken is None:
        return None
    tags = view.intake.taken.tags
    if tags is None:
        return None
    consuming = sum(tag.startswith(view.own_prefix) for tag in tags)
    # A replica shows this: nobody of us consumes while brake, gate or database pause all of them, and they are there.
    return counted(consuming, "replica") if consuming else None


def _canary(view: View | None) -> str | None:
    if view is None or view.canaries == OFF or isinstance(view.canaries, Unknown):
        return None
    took = [
        one.took_seconds
        for one in view.canaries
        if one.state is CanaryState.OK and one.took_seconds is not None
    ]
    return f"canary {max(took):.1f} s" if took else None


def _answered(view: View | None) -> str | None:
    if view is None or not isinstance(view.database, DatabaseSeen) or view.database.trouble is not None:
        return None
    return f"{view.database.answer_seconds * 1000:.0f} ms"


def _pending(view: View | None) -> str | None:
    if view is None or not isinstance(view.outbox, OutboxSeen):
        return None
    return f"{thousands(view.outbox.pending)} waiting"


def _is_of_executor(diagnosis: Diagnosis) -> bool:
    """The executor alone has to be restarted, and no worker."""
    return diagnosis.component is Component.EXECUTOR and not diagnosis.about


def _workers(view: View | None, known: Mapping[str, Diagnosis]) -> Cell:
    """The worst of their diagnoses gives the state, a count the word: how many of how many."""
    words = {
        doctor_database_lines.WORKERS: "none",
        WORKER_GONE: "gone",
        WORKER_HUNG: "hung",
        WORKER_SERVICES: "restart needed",
        WORKER_QUEUE: "no consumer",
        WORKER_BACKLOG: "slow",
    }
    found = [
        (known[looked.check], word)
        for looked, word in words.items()
        if looked.check in known and not _is_of_executor(known[looked.check])
    ]
    state, word = _worst(found, "available")
    number = None
    if view is not None and not isinstance(view.workers, Unknown):
        there = [one for one in view.workers if not is_history(one.registered.worker)]
        gone = sum(one.standing.availability is Availability.UNAVAILABLE for one in there)
        if gone and word in ("gone", "none"):
            word = f"{gone} of {len(there)} gone"
        elif state is State.OK:
            available = sum(one.standing.availability is Availability.AVAILABLE for one in there)
            word = f"{available} of {len(there)} available"
        else:
            number = counted(len(there), "worker")
    return Cell(component="Workers", href="/workers", state=state, word=word, number=number)
