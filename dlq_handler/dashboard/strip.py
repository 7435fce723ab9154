"""The strip of five: dlq-handler, Broker, Database, Workers, Publishing; each a sign, a word and one number. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlq_handler.dashboard.words import UNKNOWN, State, counted, state_of, thousands
from dlq_handler.diagnosis.check_services import finding_of
from dlq_handler.diagnosis.checks import Check, Component
from dlq_handler.diagnosis.diagnosis import Diagnosis, Health
from dlq_handler.diagnosis.view import OFF, DatabaseFact, OutboxFact, QueueFact, Unknown, View
from dlq_handler.topology.canary import CanaryState
from dlq_handler.workers.availability import Availability, is_silent_for_a_day


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    component: str
    href: str
    state: State
    word: str
    number: str | None


def strip(view: View | None, diagnoses: Sequence[Diagnosis]) -> Sequence[Cell]:
    """`view` None: of the past only the diagnoses are known, so there are no numbers."""
    known = {one.check: one for one in diagnoses}
    replica_words = _replica_words(known)
    return (
        _cell("dlq-handler", known, replica_words, fine="working", number=_replicas(view)),
        _broker(view, known),
        _cell("Database", known, _DATABASE_WORDS, fine="connected", number=_answered(view)),
        _workers(view, known),
        _cell("Publishing", known, _PUBLISHING_WORDS, fine="working", number=_pending(view)),
    )


# The word for a component when this check is its worst, in the order of importance.
_REPLICA_WORDS: Mapping[Check, str] = {
    Check.SAFETY_GATE: "gate closed",
    Check.BRAKE: "brake tripped",
    Check.REPLICAS: "not consuming",
    Check.TIMEOUT_MONITOR: "no leader",
    Check.SHADOW_MODE: "shadow mode",
}
_BROKER_WORDS: Mapping[Check, str] = {
    Check.BROKER: "unreachable",
    Check.BROKER_ALARM: "alarm",
    Check.TOPOLOGY: "broken route",
    Check.CANARY: "canary lost",
    Check.OTHER_CONSUMERS: "other consumer",
}
# Without the broker nothing can be published, whatever the outbox holds.
_PUBLISHING_WORDS: Mapping[Check, str] = {Check.BROKER: "paused", Check.PUBLISHING: "stuck"}
_DATABASE_WORDS: Mapping[Check, str] = {
    Check.DATABASE: "unreachable or slow",
    Check.OWN_TABLES: "tables outdated",
    Check.DATABASE_RIGHTS: "rights missing",
}


def _is_database_unavailable(known: Mapping[Check, Diagnosis]) -> bool:
    database = known.get(Check.DATABASE)
    return database is not None and database.health is Health.PROBLEM


def _replica_words(known: Mapping[Check, Diagnosis]) -> Mapping[Check, str]:
    """Without its database a replica pauses. Starting another one does not help."""
    return {**_REPLICA_WORDS, Check.REPLICAS: "paused"} if _is_database_unavailable(known) else _REPLICA_WORDS


def _broker(view: View | None, known: Mapping[Check, Diagnosis]) -> Cell:
    """Canaries are recorded in the database: during its outage they are unknown while the broker answers. The word
    "unknown" would make the operator search for a fault of the broker.
    """
    words, number = _BROKER_WORDS, _canary(view)
    health = {check: known[check].health for check in _BROKER_WORDS if check in known}
    answers = health.get(Check.BROKER) is Health.OK
    if answers and _is_database_unavailable(known) and health.get(Check.CANARY) is Health.UNKNOWN:
        words = {check: word for check, word in _BROKER_WORDS.items() if check is not Check.CANARY}
        number = f"canary {UNKNOWN}"
    return _cell("Broker", known, words, fine="connected", number=number, href="/topology")


def _cell(
    component: str,
    known: Mapping[Check, Diagnosis],
    words: Mapping[Check, str],
    *,
    fine: str,
    number: str | None,
    href: str = "/#checks",
) -> Cell:
    found = [(known[check], word) for check, word in words.items() if check in known]
    state, word = _worst(found, fine)
    return Cell(component=component, href=href, state=state, word=word, number=number)


def _worst(found: Iterable[tuple[Diagnosis, str]], fine: str) -> tuple[State, str]:
    """Never green by default: without a check the state is unknown."""
    seen = list(found)
    for health in (Health.PROBLEM, Health.UNKNOWN):
        for diagnosis, word in seen:
            if diagnosis.health is health:
                return state_of(diagnosis), word if health is Health.PROBLEM else "unknown"
    return (State.OK, fine) if seen else (State.UNKNOWN, "unknown")


def _replicas(view: View | None) -> str | None:
    if view is None or not isinstance(view.intake, QueueFact) or view.intake.consumers is None:
        return None
    tags = view.intake.consumers.tags
    if tags is None:
        return None
    consuming = sum(tag.startswith(view.own_prefix) for tag in tags)
    # None consumes while brake, gate or database pause them all, but the replicas run.
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
    if view is None or not isinstance(view.database, DatabaseFact) or view.database.error is not None:
        return None
    return f"{view.database.answer_seconds * 1000:.0f} ms"


def _pending(view: View | None) -> str | None:
    if view is None or not isinstance(view.outbox, OutboxFact):
        return None
    return f"{thousands(view.outbox.pending)} waiting"


def _is_of_executor(diagnosis: Diagnosis, view: View | None) -> bool:
    """The executor alone has to be restarted, and no worker."""
    has_worker = (
        view is not None and not isinstance(view.workers, Unknown) and any(map(finding_of, view.workers))
    )
    return diagnosis.component is Component.EXECUTOR and not has_worker


def _needs_broker(check: Check, known: Mapping[Check, Diagnosis]) -> bool:
    """Without the broker the queues are unknown, but heartbeats are in the database: availability is known."""
    broker = known.get(Check.BROKER)
    is_unreachable = broker is not None and broker.health is Health.PROBLEM
    return is_unreachable and check in _OF_QUEUES and known[check].health is Health.UNKNOWN


_OF_QUEUES = (Check.WORKER_HUNG, Check.SERVICES, Check.WORKER_QUEUE, Check.WORKER_BACKLOG)


def _workers(view: View | None, known: Mapping[Check, Diagnosis]) -> Cell:
    """The worst of their diagnoses gives the state, a count the word: how many of how many."""
    words = {
        Check.WORKERS: "none",
        Check.WORKER_UNAVAILABLE: "unavailable",
        Check.WORKER_HUNG: "hung",
        Check.SERVICES: "restart needed",
        Check.WORKER_QUEUE: "no consumer",
        Check.WORKER_BACKLOG: "slow",
    }
    found = [
        (known[check], word)
        for check, word in words.items()
        if check in known and not _is_of_executor(known[check], view) and not _needs_broker(check, known)
    ]
    state, word = _worst(found, "available")
    number = None
    if view is not None and not isinstance(view.workers, Unknown):
        there = [one for one in view.workers if not is_silent_for_a_day(one.registered.worker)]
        unavailable = sum(one.standing.availability is Availability.UNAVAILABLE for one in there)
        if unavailable and word in ("unavailable", "none"):
            word = f"{unavailable} of {len(there)} unavailable"
        elif state is State.OK:
            available = sum(one.standing.availability is Availability.AVAILABLE for one in there)
            word = f"{available} of {len(there)} available"
        else:
            number = counted(len(there), "worker")
    return Cell(component="Workers", href="/workers", state=state, word=word, number=number)
