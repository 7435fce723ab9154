"""Check a topology: for each queue whether its dead letters arrive, the drift, and the conclusion.

Pure. The conclusion is a broken route only when an execution can hang because of it: a registered worker's queue whose
dead letters do not arrive, or a finding of that severity. Messages that Attune's services reject in other queues are
only recorded, so losing them is a note.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from dlq_handler.broker.admin.snapshot import Snapshot
from dlq_handler.host.owners import SERVICE_QUEUES
from dlq_handler.topology.blueprint import Blueprint
from dlq_handler.topology.canary import CANARY_QUEUE
from dlq_handler.topology.drift import Expectation, Finding, Severity, find_drift, listed
from dlq_handler.topology.routing import Answer, Path, Walk, walk


class QueueRole(StrEnum):
    WORKER = "worker"
    RETIRED_WORKER = "retired worker"
    OTHER = "other"


class Conclusion(StrEnum):
    FINE = "fine"
    BROKEN_ROUTE = "broken route"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedQueue:
    queue: str
    role: QueueRole
    arrives: Answer
    path: Path
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTopology:
    conclusion: Conclusion
    intake_queue: str | None
    queues: tuple[CheckedQueue, ...]
    findings: tuple[Finding, ...]


def check(snapshot: Snapshot, expected: Expectation) -> CheckedTopology:
    intake = expected.blueprint.intake_queue if expected.blueprint.has_intake else None
    queues = tuple(
        _checked(walk(snapshot, name, intake), _role(name, expected))
        for name in _of_interest(snapshot, expected)
    )
    findings = (*find_drift(snapshot, expected), *_losses(queues, expected))
    return CheckedTopology(
        conclusion=_conclude(queues, findings, expected, is_complete=snapshot.is_complete),
        intake_queue=intake,
        queues=queues,
        findings=findings,
    )


def unknown_topology(expected: Expectation) -> CheckedTopology:
    """For a broker whose topology was not read."""
    intake = expected.blueprint.intake_queue if expected.blueprint.has_intake else None
    return CheckedTopology(conclusion=Conclusion.UNKNOWN, intake_queue=intake, queues=(), findings=())


def _of_interest(snapshot: Snapshot, expected: Expectation) -> list[str]:
    """Workers' queues first, by id; then every other queue whose messages can die into an exchange."""
    workers = expected.blueprint.workers
    ids = set(expected.worker_ids or ())
    ids.update(owner for owner in map(workers.owner_of, snapshot.queues) if owner is not None)
    worker_queues = [workers.queue(worker) for worker in sorted(ids)]
    others = {
        name
        for name, queue in snapshot.queues.items()
        if name in SERVICE_QUEUES or queue.dead_letter_exchange is not None
    }
    # The canary queue holds only messages with workers' keys, and the workers' queues cover those keys.
    own = {expected.blueprint.intake_queue, CANARY_QUEUE}
    return worker_queues + sorted(others.difference(worker_queues, own))


def _role(queue: str, expected: Expectation) -> QueueRole:
    owner = expected.blueprint.workers.owner_of(queue)
    if owner is None:
        return QueueRole.OTHER
    # Without the database the registered workers are unknown. A false alarm is better than a missed one.
    is_registered = expected.worker_ids is None or owner in expected.worker_ids
    return QueueRole.WORKER if is_registered else QueueRole.RETIRED_WORKER


def _checked(walked: Walk, role: QueueRole) -> CheckedQueue:
    return CheckedQueue(
        queue=walked.queue,
        role=role,
        arrives=walked.answer,
        path=walked.path,
        sentence=walked.sentence,
    )


def _losses(queues: Iterable[CheckedQueue], expected: Expectation) -> Iterator[Finding]:
    lost = [checked for checked in queues if checked.arrives is Answer.BROKEN_ROUTE]
    if not expected.blueprint.has_intake:
        dropped = [checked.queue for checked in lost]
        if dropped:
            yield Finding(
                severity=Severity.DRIFT,
                subject=f"{len(dropped)} queue(s): {listed(dropped)}",
                is_now="drop expired and rejected messages while dead lettering is off",
                wanted="message_queue.rabbitmq.dead_letter.enabled: true",
                way_out="executions of dropped dispatches stay scheduled until Attune's monitor finds them",
            )
        return
    others = [checked.queue for checked in lost if checked.role is not QueueRole.WORKER]
    if others:
        yield Finding(
            severity=Severity.NOTE,
            subject=f"{len(others)} queue(s) whose dead letters dlq-handler does not receive: {listed(others)}",
            is_now=f"messages rejected there leave no record{_why_none(expected.blueprint)}",
            wanted="a record of each; no execution is failed over it either way",
            way_out=_way_to_more_records(expected.blueprint),
        )


def _why_none(blueprint: Blueprint) -> str:
    if blueprint.shadow is not None:
        return ": shadow mode receives only copies of workers' dead letters"
    if blueprint.intake_is_our_own:
        return ": the intake queue is bound with the keys of registered workers and of Attune's execution services"
    return ""


def _way_to_more_records(blueprint: Blueprint) -> str:
    if blueprint.shadow is not None or blueprint.intake_is_our_own:
        return "no action needed"
    return (
        "a separate intake queue (dlq_handler.intake.queue) is bound with the keys that can be listed; "
        "attune.dlx.queue must not be, since a stock executor would fail healthy executions"
    )


def _conclude(
    queues: Iterable[CheckedQueue], findings: Iterable[Finding], expected: Expectation, *, is_complete: bool
) -> Conclusion:
    if not expected.blueprint.has_intake:
        return Conclusion.FINE
    answers = {checked.arrives for checked in queues if checked.role is QueueRole.WORKER}
    if Answer.BROKEN_ROUTE in answers or any(
        finding.severity is Severity.BROKEN_ROUTE for finding in findings
    ):
        return Conclusion.BROKEN_ROUTE
    if Answer.UNKNOWN in answers or not is_complete:
        return Conclusion.UNKNOWN
    return Conclusion.FINE
