"""Workers, topology, and the story of one execution. Workers and topology come from the last observation."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from fastapi import APIRouter

from dlq_handler.api.shapes import EVERYWHERE, Id, Shape, failures
from dlq_handler.dead_letters.listing import no_record_sentence
from dlq_handler.diagnosis.check_services import ServiceFinding, finding_of
from dlq_handler.diagnosis.view import OFF, ObservedWorker, Unknown
from dlq_handler.errors import Unavailable
from dlq_handler.explain.records import Waiting
from dlq_handler.explain.story import Moment
from dlq_handler.host.story_sql import ExecutionFacts
from dlq_handler.topology.canary import WorkerCanary
from dlq_handler.topology.check import CheckedQueue, Conclusion
from dlq_handler.topology.drift import Finding
from dlq_handler.web.errors import Refused
from dlq_handler.web.world import UiWorld
from dlq_handler.workers.availability import Availability


class WorkerShape(Shape):
    id: int
    name: str
    availability: Availability
    explanation: str
    last_heartbeat: datetime | None
    heartbeat_age_seconds: float | None
    """When it was observed."""
    status: str
    host: str | None
    role: str | None
    is_cordoned: bool
    cordon_reason: str | None
    consumers: int | None
    """Of its queue; null, as the next two: unknown, or there is no queue."""
    ready: int | None
    unacked: int | None
    queue_error: str | None
    """Why its queue is unknown."""
    restart_reason: ServiceFinding | None
    """Why it has to be restarted; null: no reason is known."""
    scheduled: int
    running: int
    ended_last_hour: int | None
    """Its executions that dlq-handler ended."""
    canary: WorkerCanary | None


class WorkerList(Shape):
    at: datetime
    workers: list[WorkerShape]


class TopologyShape(Shape):
    at: datetime
    conclusion: Conclusion
    intake_queue: str | None
    queues: Sequence[CheckedQueue]
    findings: Sequence[Finding]
    limits: Sequence[str]
    """What could not be read."""


class Story(Shape):
    execution: ExecutionFacts | None
    """null: the host has no such row."""
    moments: Sequence[Moment]
    waiting: Waiting | None
    """null: it has ended."""
    letter_ids: list[int]
    has_history: bool
    """Whether the host's own history could be read."""
    now: datetime


def fleet_routes(world: UiWorld) -> APIRouter:
    router = APIRouter(tags=["fleet"], responses=EVERYWHERE)

    @router.get("/workers")
    async def list_workers() -> WorkerList:
        at, workers = _observed(world)
        canaries = _canaries(world)
        return WorkerList(at=at, workers=[_worker(one, canaries) for one in workers])

    @router.get("/workers/{worker_id}", responses=failures(404))
    async def show_worker(worker_id: Id) -> WorkerShape:
        _, workers = _observed(world)
        for one in workers:
            if one.registered.worker.id == worker_id:
                return _worker(one, _canaries(world))
        raise Refused(404, f"No worker {worker_id} is registered.")

    @router.get("/topology")
    async def topology() -> TopologyShape:
        seen = world.topology()
        if isinstance(seen, Unknown):
            raise Unavailable("topology", seen.explanation)
        checked = seen.checked
        return TopologyShape(
            at=world.seen_at,
            conclusion=checked.conclusion,
            intake_queue=checked.intake_queue,
            queues=checked.queues,
            findings=checked.findings,
            limits=seen.limits,
        )

    @router.get("/executions/{execution_id}", responses=failures(404))
    async def explain(execution_id: Id) -> Story:
        """What happened to it, in order, and while it is open, why it still waits."""
        explanation = await world.services.explain(execution_id)
        if explanation is None:
            raise Refused(404, no_record_sentence(world.retention.resolved_seconds))
        records = explanation.records
        return Story(
            execution=records.execution,
            moments=explanation.moments,
            waiting=explanation.waiting,
            letter_ids=[letter.id for letter in records.letters],
            has_history=records.history is not None,
            now=records.now,
        )

    return router


def _observed(world: UiWorld) -> tuple[datetime, Sequence[ObservedWorker]]:
    workers = world.workers()
    if isinstance(workers, Unknown):
        raise Unavailable("workers", workers.explanation)
    return world.seen_at, workers


def _canaries(world: UiWorld) -> Mapping[int, WorkerCanary]:
    seen = world.diagnoser.latest
    canaries = () if seen is None else seen.view.canaries
    return (
        {} if isinstance(canaries, Unknown) or canaries == OFF else {one.worker_id: one for one in canaries}
    )


def _worker(seen: ObservedWorker, canaries: Mapping[int, WorkerCanary]) -> WorkerShape:
    registered, worker = seen.registered, seen.registered.worker
    return WorkerShape(
        id=worker.id,
        name=registered.name,
        availability=seen.standing.availability,
        explanation=seen.standing.explanation,
        last_heartbeat=worker.last_heartbeat,
        heartbeat_age_seconds=worker.heartbeat_age_seconds,
        status=registered.status,
        host=registered.host,
        role=registered.role,
        is_cordoned=registered.is_cordoned,
        cordon_reason=registered.cordon_reason,
        consumers=seen.known_queue.consumers if seen.known_queue else None,
        ready=seen.known_queue.ready if seen.known_queue else None,
        unacked=seen.known_queue.unacked if seen.known_queue else None,
        queue_error=seen.queue.explanation if isinstance(seen.queue, Unknown) else None,
        restart_reason=finding_of(seen),
        scheduled=registered.scheduled,
        running=registered.running,
        ended_last_hour=seen.ended_last_hour,
        canary=canaries.get(worker.id),
    )
