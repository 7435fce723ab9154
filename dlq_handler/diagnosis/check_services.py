"""Checks of the services of the host that run without consumers, and of workers that get no work. Pure.

Attune's services do not reconnect to RabbitMQ, and its heartbeats do not make an inactive worker active again. Only a
restart of the service cures either. The other diagnoses say what that does to messages and executions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from dlq_handler.diagnosis.checks import Check, Component
from dlq_handler.diagnosis.diagnosis import Diagnosis, ok, problem, unknown
from dlq_handler.diagnosis.view import ObservedWorker, QueueFact, Unknown, UnknownCause, View
from dlq_handler.host.worker import WorkerStatus
from dlq_handler.text import in_units
from dlq_handler.workers.service_observation import ServiceObservation

NEXT_HEARTBEAT = "Start `dlq-handler run`: a running replica knows after the next heartbeat of the worker."

OTHERS = "Attune's other services (API, sensors, supervisor) do not reconnect either: restart those that run"

_NAMED, _SHOWN = 5, 10


class ServiceFinding(StrEnum):
    """Why a service has to be restarted."""

    EXECUTOR_WITHOUT_CONSUMER = "executor_without_consumer"
    WORKER_WITHOUT_CONSUMER = "worker_without_consumer"
    WORKER_INACTIVE = "worker_inactive"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stranded:
    """Services without a consumer for one and the same reason."""

    executor: Sequence[QueueFact] = ()
    """Its queues that have none."""
    workers: Sequence[ObservedWorker] = ()
    observation: ServiceObservation | None = None
    """Of the last of them that lost it; None: nothing is on record."""


def services(view: View) -> Diagnosis:
    executor = _unconsumed_of_executor(view)
    workers = () if isinstance(view.workers, Unknown) else view.workers
    unconsumed = [one for one in workers if one.reports_unconsumed]
    inactive = [one for one in workers if one.reports_inactive]
    if not (unconsumed or inactive or _was_cut_off(executor, view)):
        # An executor that may just as well be stopped: the checks of its queues report it.
        return _of_none(view)
    groups = _by_cause(executor, unconsumed, view)
    sentences = [*(_sentence(group, view) for group in groups), *_about_inactive(inactive)]
    is_cut_off = any(
        group.observation and (group.observation.restarted_at or group.observation.connection_lost_at)
        for group in groups
    )
    return problem(
        Check.SERVICES,
        " ".join(sentences),
        _action(executor, [*unconsumed, *inactive]),
        since=min((since for group in groups if (since := _since(group.observation))), default=None),
        evidence=[
            *(_about_queue(one, view) for one in executor),
            *_some(_about_worker(one, view) for one in (*unconsumed, *inactive)),
            *([OTHERS] if is_cut_off else ()),
        ],
        headline=_headline(executor, unconsumed, inactive),
        component=Component.EXECUTOR if executor else Component.WORKERS,
    )


def finding_of(worker: ObservedWorker) -> ServiceFinding | None:
    """Why this worker has to be restarted; None: nothing says so."""
    if worker.reports_unconsumed:
        return ServiceFinding.WORKER_WITHOUT_CONSUMER
    return ServiceFinding.WORKER_INACTIVE if worker.reports_inactive else None


def count_services(view: View) -> Mapping[ServiceFinding, int | None]:
    """How many have to be restarted; None: unknown."""
    executor: int | None = 1 if _unconsumed_of_executor(view) else 0
    if not executor and any(isinstance(one, Unknown) for one in (view.completions, view.requests)):
        executor = None
    unconsumed: int | None = None
    inactive: int | None = None
    if not isinstance(view.workers, Unknown) and _has_observations(view):
        inactive = sum(one.reports_inactive for one in view.workers)
        unconsumed = sum(one.reports_unconsumed for one in view.workers)
        if not unconsumed and any(_is_unobserved(one) for one in view.workers):
            unconsumed = None
    return {
        ServiceFinding.EXECUTOR_WITHOUT_CONSUMER: executor,
        ServiceFinding.WORKER_WITHOUT_CONSUMER: unconsumed,
        ServiceFinding.WORKER_INACTIVE: inactive,
    }


def _of_none(view: View) -> Diagnosis:
    """None has to be restarted, as far as that is known."""
    if isinstance(view.workers, Unknown):
        return unknown(Check.SERVICES, view.workers)
    for one in view.workers:
        if isinstance(one.queue, Unknown) and _is_unobserved(one):
            return unknown(Check.SERVICES, Unknown(f"{one.name}: {one.queue.explanation}", one.queue.cause))
    first = [one for one in view.workers if one.is_reporting and not one.is_consumed and not one.is_inactive]
    if not first:
        return ok(Check.SERVICES, "Every worker that reports consumes its queue.")
    if _has_observations(view):
        return ok(
            Check.SERVICES,
            "No worker has sent two heartbeats without a consumer.",
            evidence=_some(f"{one.name}: no consumer at this observation" for one in first),
        )
    verb = "reports" if len(first) == 1 else "report"
    why = (
        f"{_names(first)} {verb} and had no consumer at this observation; whether that lasts is not on record"
    )
    return unknown(Check.SERVICES, Unknown(why, UnknownCause.TAKES_TIME), NEXT_HEARTBEAT)


def _unconsumed_of_executor(view: View) -> list[QueueFact]:
    queues = (view.completions, view.requests)
    return [
        one for one in queues if isinstance(one, QueueFact) and one.consumers and one.consumers.count == 0
    ]


def _has_observations(view: View) -> bool:
    observations = view.service_observations
    return not isinstance(observations, Unknown) and observations.are_current(view.at)


def _is_unobserved(one: ObservedWorker) -> bool:
    return one.is_reporting and isinstance(one.queue, Unknown)


def _observation_of(queue: QueueFact, view: View) -> ServiceObservation | None:
    if isinstance(view.service_observations, Unknown) or not _has_observations(view):
        return None
    return view.service_observations.by_queue.get(queue.name)


def _was_cut_off(executor: Sequence[QueueFact], view: View) -> bool:
    """It consumed, the connection to the broker broke, and it consumes no more."""
    observations = [_observation_of(queue, view) for queue in executor]
    return any(one is not None and (one.restarted_at or one.connection_lost_at) for one in observations)


def _by_cause(
    executor: Sequence[QueueFact], workers: Sequence[ObservedWorker], view: View
) -> list[_Stranded]:
    """Those of one restart together."""
    groups: dict[object, _Stranded] = {}
    for queue in executor:
        observation = _observation_of(queue, view)
        group = groups.setdefault(_cause(observation), _Stranded())
        groups[_cause(observation)] = replace(
            group, executor=(*group.executor, queue), observation=_newest(group.observation, observation)
        )
    for one in workers:
        group = groups.setdefault(_cause(one.observation), _Stranded())
        groups[_cause(one.observation)] = replace(
            group, workers=(*group.workers, one), observation=_newest(group.observation, one.observation)
        )
    return list(groups.values())


def _cause(observation: ServiceObservation | None) -> object:
    if observation is None:
        return None
    return observation.restarted_at or ("lost" if observation.connection_lost_at else "since")


def _newest(one: ServiceObservation | None, other: ServiceObservation | None) -> ServiceObservation | None:
    """Since the newest of them all are without a consumer: the time of the oldest would be wrong for the others."""
    return max((known for known in (one, other) if known), key=_began, default=None)


def _began(observation: ServiceObservation) -> datetime:
    return observation.unconsumed_since or datetime.min.replace(tzinfo=UTC)


def _since(observation: ServiceObservation | None) -> datetime | None:
    if observation is None:
        return None
    return observation.restarted_at or observation.connection_lost_at or observation.unconsumed_since


def _sentence(group: _Stranded, view: View) -> str:
    what = _what(group)
    observation = group.observation
    if observation is None or observation.unconsumed_since is None:
        return f"{what[0].upper()}{what[1:]}." if group.executor else f"{what}."
    if observation.restarted_at is not None:
        return f"The broker restarted at {_clock(observation.restarted_at, view)}. Since then {what}."
    if observation.connection_lost_at is not None:
        lost_at = _clock(observation.connection_lost_at, view)
        return f"dlq-handler's connection to the broker broke at {lost_at}. Since then {what}."
    return f"Since {_clock(observation.unconsumed_since, view)} {what}."


def _what(group: _Stranded) -> str:
    clauses = []
    if len(group.executor) == 1:
        clauses.append(f"the executor's queue {group.executor[0].name!r} has no consumer")
    elif group.executor:
        clauses.append("the executor's queues have no consumer")
    if group.workers:
        verb = "reports" if len(group.workers) == 1 else "report"
        clauses.append(f"{_names(group.workers)} {verb} without consuming")
    return ", and ".join(clauses)


def _about_inactive(found: Sequence[ObservedWorker]) -> list[str]:
    if not found:
        return []
    verb, them = ("reports and is", "it") if len(found) == 1 else ("report and are", "them")
    return [
        f"{_names(found)} {verb} inactive in Attune's worker table, so the scheduler gives {them} no work."
    ]


def _action(executor: Sequence[QueueFact], workers: Sequence[ObservedWorker]) -> str:
    these = "this worker" if len(workers) == 1 else "these workers"
    whom = [*(["the executor"] if executor else ()), *([these] if workers else ())]
    return f"Restart {' and '.join(whom)}."


def _headline(
    executor: Sequence[QueueFact], unconsumed: Sequence[ObservedWorker], inactive: Sequence[ObservedWorker]
) -> str:
    workers = [*unconsumed, *inactive]
    if executor:
        if not workers:
            return "The executor does not consume"
        return f"The executor and {_many(workers)} {'get no work' if inactive else 'do not consume'}"
    if not inactive:
        return f"{_many(workers)} {'reports' if len(workers) == 1 else 'report'} without consuming"
    return f"{_many(workers)} {'reports and gets' if len(workers) == 1 else 'report and get'} no work"


def _many(workers: Sequence[ObservedWorker]) -> str:
    return workers[0].name if len(workers) == 1 else f"{len(workers)} workers"


def _names(workers: Sequence[ObservedWorker]) -> str:
    names = [one.name for one in workers[:_NAMED]]
    rest = len(workers) - _NAMED
    if rest > 0:
        return f"{', '.join(names)} and {rest} more workers"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _about_queue(queue: QueueFact, view: View) -> str:
    observation = _observation_of(queue, view)
    return f"{queue.name}: 0 consumers{_times(observation, view)}"


def _about_worker(one: ObservedWorker, view: View) -> str:
    state = (
        WorkerStatus.INACTIVE.value if one.reports_inactive else f"0 consumers{_times(one.observation, view)}"
    )
    return f"{one.name}: {state}, last heartbeat {in_units(one.silent_seconds)} ago"


def _times(observation: ServiceObservation | None, view: View) -> str:
    if observation is None or observation.unconsumed_since is None:
        return ""
    consumed_at = observation.consumed_at
    before = "" if consumed_at is None else f", last seen with one at {_clock(consumed_at, view)}"
    return f" since {_clock(observation.unconsumed_since, view)}{before}"


def _some(lines: Iterable[str]) -> list[str]:
    shown = list(lines)
    rest = len(shown) - _SHOWN
    return shown[:_SHOWN] + ([f"and {rest} more"] if rest > 0 else [])


def _clock(at: datetime, view: View) -> str:
    """`01:05 UTC`, with its date unless that is today's."""
    at = at.astimezone(UTC)
    is_today = at.date() == view.at.astimezone(UTC).date()
    return f"{at:%H:%M} UTC" if is_today else f"{at:%Y-%m-%d %H:%M} UTC"
