"""A canary run: which stage each canary of one command reached, and what that says. Pure.

A canary passes three stages: confirmed (the broker accepted it), expired (it left the canary queue for the dead-letter
exchange), received (a replica consumed it from the intake queue). The last stage shows where the route ended. All times
are by the database clock, in seconds since the canary was written.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from dlq_handler.topology.canary import CANARY_QUEUE
from dlq_handler.topology.consumers import Consumers

_SHOWN_WORKERS = 5


class Stage(StrEnum):
    """The last stage that a canary reached."""

    SENT = "sent"
    """The broker did not confirm it. It may not be in any queue."""
    CONFIRMED = "confirmed"
    EXPIRED = "expired"
    RECEIVED = "received"


class RunProblem(StrEnum):
    """Why a canary did not arrive in time, or why the run could not send any."""

    BROKEN_ROUTE = "broken_route"
    OTHER_CONSUMER = "other_consumer"
    UNIDENTIFIED_CONSUMER = "unidentified_consumer"
    """The route is broken, or a consumer whose owner is unknown received it."""
    BACKLOG = "backlog"
    NO_REPLICA = "no_replica"
    NOT_EXPIRED = "not_expired"
    LATE = "late"
    NOT_CONFIRMED = "not_confirmed"
    CONNECTION_LOST = "connection_lost"
    DISABLED = "disabled"
    NO_WORKER = "no_worker"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"


# With these it is unknown whether the canary arrives.
_UNKNOWN = (RunProblem.NOT_CONFIRMED, RunProblem.CONNECTION_LOST)


class RunConclusion(StrEnum):
    ARRIVED = "arrived"
    NOT_ARRIVED = "not_arrived"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCanary:
    id: UUID
    worker_id: int
    error: str | None = None
    """Why the broker did not confirm it; None: it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCanary:
    """What the database knows of a canary."""

    id: UUID
    created_at: datetime
    ttl_seconds: float
    age_seconds: float
    confirmed_seconds: float | None
    received_seconds: float | None
    received_by: str | None

    def is_overdue(self, limit_seconds: float) -> bool:
        if self.confirmed_seconds is None:
            return True
        return self.age_seconds - self.confirmed_seconds > self.ttl_seconds + limit_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryResult:
    id: UUID
    worker_id: int
    stage: Stage
    problem: RunProblem | None
    """None: it arrived within the limit."""
    confirmed_seconds: float | None
    expired_seconds: float | None
    """When it was first seen to have left the canary queue: an upper bound. None: unknown, or it has not left."""
    received_seconds: float | None
    received_by: str | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryRunReport:
    conclusion: RunConclusion
    problem: RunProblem | None
    explanation: str
    action: str | None
    queue: str
    """The intake queue that the canaries are to arrive in."""
    sent_at: datetime | None
    """When the canaries were written, by the database clock; None: none was sent, or unknown."""
    ttl_seconds: float | None
    """Time that a canary waits in the canary queue; None: none was sent."""
    limit_seconds: float
    canaries: Sequence[CanaryResult] = ()


def ids_of_expired(
    in_order: Sequence[StoredCanary], *, is_queue_empty: bool, newest_received_age: float | None
) -> set[UUID]:
    """Canaries that have left the canary queue, as far as that can be known.

    Canaries leave the canary queue in the order in which they entered it: all have the same TTL. So a canary has left
    when the queue is empty, or when a canary that entered later was received. `in_order`: as they were published.
    `newest_received_age`: seconds since the newest received canary of any sender was written.
    """
    last_received = max(
        (place for place, one in enumerate(in_order) if one.received_seconds is not None), default=-1
    )
    left = set()
    for place, one in enumerate(in_order):
        if one.confirmed_seconds is None:
            continue
        confirmed_ago = one.age_seconds - one.confirmed_seconds
        is_before_received = newest_received_age is not None and newest_received_age < confirmed_ago
        if is_queue_empty or place <= last_received or is_before_received:
            left.add(one.id)
    return left


def replica_problem(consumers: Consumers | None, *, own_prefix: str) -> RunProblem | None:
    """`NO_REPLICA` when no consumer of the intake queue can be a replica. `consumers` None: there is no such queue."""
    if consumers is None or consumers.count == 0:
        return RunProblem.NO_REPLICA
    if consumers.tags is not None and not any(tag.startswith(own_prefix) for tag in consumers.tags):
        return RunProblem.NO_REPLICA
    return None


def expired_problem(
    consumers: Consumers | None, *, own_prefix: str, received_by: Collection[str]
) -> RunProblem:
    """Why an expired canary was not received. `consumers`: of the intake queue, at the end of the run.

    `received_by`: replicas that received a canary of the run.
    """
    if (missing := replica_problem(consumers, own_prefix=own_prefix)) is not None or consumers is None:
        return missing or RunProblem.NO_REPLICA
    if others_among(consumers, own_prefix=own_prefix):
        return RunProblem.OTHER_CONSUMER
    # As many replicas received canaries as there are consumers: none of the consumers is anything else.
    if consumers.tags is None and len(set(received_by)) < consumers.count:
        return RunProblem.UNIDENTIFIED_CONSUMER
    return RunProblem.BACKLOG if consumers.ready else RunProblem.BROKEN_ROUTE


def others_among(consumers: Consumers, *, own_prefix: str) -> list[str]:
    """Consumer tags that are not a replica's, as far as they are known."""
    return sorted(tag for tag in consumers.tags or () if not tag.startswith(own_prefix))


def result_of(
    published: PublishedCanary,
    stored: StoredCanary | None,
    *,
    expired_seconds: float | None,
    limit_seconds: float,
    problem_if_expired: RunProblem,
) -> CanaryResult:
    """`stored` None: the database did not answer after the canary was published."""
    confirmed = stored.confirmed_seconds if stored is not None else None
    received = stored.received_seconds if stored is not None else None
    problem: RunProblem | None
    if received is not None and expired_seconds is not None:
        # An upper bound: it had expired when it was looked for, and its receipt was committed a moment later.
        expired_seconds = min(expired_seconds, received)
    if received is not None and stored is not None:
        stage = Stage.RECEIVED
        is_late = received - (confirmed or 0.0) > stored.ttl_seconds + limit_seconds
        problem = RunProblem.LATE if is_late else None
    elif published.error is not None:
        stage, problem = Stage.SENT, RunProblem.NOT_CONFIRMED
    elif expired_seconds is None:
        is_lost = problem_if_expired is RunProblem.CONNECTION_LOST
        stage, problem = Stage.CONFIRMED, RunProblem.CONNECTION_LOST if is_lost else RunProblem.NOT_EXPIRED
    else:
        stage, problem = Stage.EXPIRED, problem_if_expired
    return CanaryResult(
        id=published.id,
        worker_id=published.worker_id,
        stage=stage,
        problem=problem,
        confirmed_seconds=confirmed,
        expired_seconds=expired_seconds,
        received_seconds=received,
        received_by=stored.received_by if stored is not None else None,
        error=published.error,
    )


def report(
    canaries: Sequence[CanaryResult],
    consumers: Consumers | None,
    *,
    queue: str,
    sent_at: datetime | None,
    ttl_seconds: float,
    limit_seconds: float,
    own_prefix: str,
    error: str | None = None,
) -> CanaryRunReport:
    """`error`: why the run could not be observed to its end."""
    problems = {one.problem for one in canaries if one.problem is not None}
    certain = problems.difference(_UNKNOWN)
    # In the order of the class: the one with the clearest action first.
    problem = next((one for one in RunProblem if one in (certain or problems)), None)
    if problem is None:
        conclusion, explanation = RunConclusion.ARRIVED, _arrival(canaries)
    else:
        conclusion = RunConclusion.NOT_ARRIVED if certain else RunConclusion.UNKNOWN
        failed = [one for one in canaries if one.problem is problem]
        reason = _explanation(problem, failed, consumers, queue=queue, own_prefix=own_prefix, error=error)
        explanation = f"{_extent(canaries, problem, ttl_seconds + limit_seconds)} {reason}"
    return CanaryRunReport(
        conclusion=conclusion,
        problem=problem,
        explanation=explanation,
        action=None if problem is None else _ACTIONS[problem],
        queue=queue,
        sent_at=sent_at,
        ttl_seconds=ttl_seconds,
        limit_seconds=limit_seconds,
        canaries=tuple(canaries),
    )


def cannot_run(
    problem: RunProblem, explanation: str, *, queue: str, limit_seconds: float, action: str | None = None
) -> CanaryRunReport:
    """No canary was sent. Without `action`: the one that belongs to the problem."""
    return CanaryRunReport(
        conclusion=RunConclusion.UNKNOWN,
        problem=problem,
        explanation=explanation,
        action=action or _ACTIONS[problem],
        queue=queue,
        sent_at=None,
        ttl_seconds=None,
        limit_seconds=limit_seconds,
    )


def _arrival(canaries: Sequence[CanaryResult]) -> str:
    slowest = max((one.received_seconds or 0.0 for one in canaries), default=0.0)
    replicas = sorted({one.received_by for one in canaries if one.received_by is not None})
    return f"{len(canaries)} of {len(canaries)} canaries arrived within {slowest:.2f} s, at {', '.join(replicas)}."


def _extent(canaries: Sequence[CanaryResult], problem: RunProblem, limit_seconds: float) -> str:
    failed = sum(one.problem is not None for one in canaries)
    if problem in _UNKNOWN:
        return f"It is unknown whether {failed} of {len(canaries)} canaries arrive."
    return f"{failed} of {len(canaries)} canaries did not arrive within {limit_seconds:g} s."


def _explanation(
    problem: RunProblem,
    failed: Sequence[CanaryResult],
    consumers: Consumers | None,
    *,
    queue: str,
    own_prefix: str,
    error: str | None,
) -> str:
    workers = _workers(failed)
    match problem:
        case RunProblem.BROKEN_ROUTE:
            return f"They expired, but did not reach queue {queue!r}. The route is broken for {workers}."
        case RunProblem.OTHER_CONSUMER:
            others = others_among(consumers, own_prefix=own_prefix) if consumers is not None else []
            return f"Another consumer of {queue!r} may have received them: {', '.join(map(repr, others))}."
        case RunProblem.UNIDENTIFIED_CONSUMER:
            return (
                f"They expired with the routing key of {workers}. The route is broken, or a consumer of {queue!r} "
                "whose owner is unknown received them."
            )
        case RunProblem.BACKLOG:
            ready = consumers.ready if consumers is not None else 0
            return f"They expired. {ready} messages wait in {queue!r}."
        case RunProblem.NO_REPLICA:
            return f"They expired, but no replica consumes {queue!r} any more."
        case RunProblem.NOT_EXPIRED:
            return (
                f"It is unknown whether they expired: {CANARY_QUEUE!r} was deleted, or still holds messages."
            )
        case RunProblem.LATE:
            slowest = max(one.received_seconds or 0.0 for one in failed)
            return f"The slowest arrived after {slowest:.2f} s."
        case RunProblem.NOT_CONFIRMED:
            return f"The broker did not confirm them: {next((one.error for one in failed if one.error), 'no answer')}."
        case (
            RunProblem.CONNECTION_LOST
            | RunProblem.DISABLED
            | RunProblem.NO_WORKER
            | RunProblem.REFUSED
            | RunProblem.UNAVAILABLE
        ):
            return f"The run was not observed to its end: {error or 'the connection to the broker was lost'}."


def _workers(canaries: Sequence[CanaryResult]) -> str:
    ids = sorted({one.worker_id for one in canaries})
    rest = f" and {len(ids) - _SHOWN_WORKERS} more" if len(ids) > _SHOWN_WORKERS else ""
    return f"worker {', '.join(map(str, ids[:_SHOWN_WORKERS]))}{rest}"


_START = "Start a replica (`dlq-handler run`). If one is running, its /readyz gives the reason."
_ACTIONS = {
    RunProblem.BROKEN_ROUTE: "Run `dlq-handler topology check`, then `dlq-handler topology apply`.",
    RunProblem.OTHER_CONSUMER: (
        "Set dlq_handler.intake.queue to a queue that only dlq-handler consumes, such as attune.dlx.sidecar.queue."
    ),
    RunProblem.UNIDENTIFIED_CONSUMER: (
        "Run `dlq-handler topology check`. Make the management API available (dlq_handler.broker.management_url, "
        "user tag 'monitoring')."
    ),
    RunProblem.BACKLOG: "Wait until the replicas have processed these messages, then run the command again.",
    RunProblem.NO_REPLICA: _START,
    RunProblem.NOT_EXPIRED: f"Check queue {CANARY_QUEUE!r}, then run the command again.",
    RunProblem.LATE: "Check the load of the replicas and of the database, or give a longer --limit.",
    RunProblem.NOT_CONFIRMED: "Run `dlq-handler doctor --no-canary`, then run this command again.",
    RunProblem.CONNECTION_LOST: "Run the command again.",
    RunProblem.DISABLED: "Set dlq_handler.canary.enabled to true.",
    RunProblem.NO_WORKER: "Start a worker: a canary carries the routing key of a registered worker.",
    RunProblem.REFUSED: "Run `dlq-handler doctor --no-canary`.",
    RunProblem.UNAVAILABLE: "Run `dlq-handler doctor --no-canary`.",
}
