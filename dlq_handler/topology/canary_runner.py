"""Send canaries through the dead-letter route once, and follow each one from stage to stage.

Promises: ends within TTL + limit + a few seconds; declares nothing but the canary's own exchange and queue, and sends
nothing while no replica consumes the intake queue. Cancelling it leaves nothing to clean up: canaries expire, replicas
acknowledge them without a record, and the leader deletes their rows. Never: consumes, or binds a queue, because another
binding with a worker's key would change the route that it tests.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_probe import count_queue
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host.workers_sql import read_fleet
from dlq_handler.topology import canary_sql as store
from dlq_handler.topology.canary import CANARY_QUEUE, choose_due
from dlq_handler.topology.canary_run import (
    CanaryRunReport,
    PublishedCanary,
    RunProblem,
    StoredCanary,
    cannot_run,
    expired_problem,
    ids_of_expired,
    replica_problem,
    report,
    result_of,
)
from dlq_handler.topology.canary_sender import CanaryRefused, CanarySender
from dlq_handler.topology.consumers import Consumers, read_consumers
from dlq_handler.workers.availability import HISTORY_AFTER_SECONDS

POLL_SECONDS = 0.1
# A replica that registers its consumer again has none for a moment.
REPLICA_WAIT_SECONDS = 3.0


@dataclass(slots=True, kw_only=True)
class _Course:
    """What is known so far of the canaries of one run."""

    published: Sequence[PublishedCanary]
    stored: dict[UUID, StoredCanary] = field(default_factory=dict)
    expired_seconds: dict[UUID, float] = field(default_factory=dict)
    error: str | None = None
    """Why it could not be followed to its end."""

    def is_over(self, limit_seconds: float) -> bool:
        return all(
            one.received_seconds is not None or one.is_overdue(limit_seconds) for one in self.stored.values()
        )


class CanaryRun:
    def __init__(
        self,
        database: Database,
        admin: AdminConnection,
        api: ManagementApi,
        sender: CanarySender,
        *,
        queue: str,
        own_prefix: str,
        limit_seconds: float,
        say: Callable[[str], None],
    ) -> None:
        """`queue`: the intake queue. `own_prefix`: of the consumer tags of replicas. `say`: progress for people."""
        self._database, self._admin, self._api, self._sender = database, admin, api, sender
        self._queue, self._own_prefix, self._limit_seconds, self._say = queue, own_prefix, limit_seconds, say

    async def run(self, number: int) -> CanaryRunReport:
        """Send this many canaries, with the routing keys of all workers in turn."""
        try:
            workers = await self._choose_workers(number)
            if not workers:
                return self._cannot_run(RunProblem.NO_WORKER, "No worker has sent a heartbeat within a day.")
            if await self._wait_for_replica() is RunProblem.NO_REPLICA:
                return self._cannot_run(
                    RunProblem.NO_REPLICA, f"No replica consumes queue {self._queue!r}. No canary was sent."
                )
            incarnation = await self._admin.open()
            course = _Course(published=await self._sender.publish(workers))
        except CanaryRefused as refused:
            return self._cannot_run(RunProblem.REFUSED, str(refused))
        except (Unavailable, Contended) as error:
            return self._cannot_run(RunProblem.UNAVAILABLE, f"The canary run could not start: {error}.")
        return await self._follow_to_report(course, incarnation)

    async def _choose_workers(self, number: int) -> list[int]:
        """Those whose last canary is longest ago first; with fewer workers than canaries, each in turn."""
        fleet = await read_fleet(self._database, heard_within_seconds=HISTORY_AFTER_SECONDS)
        known = await store.read_probes(self._database, self._queue)
        chosen = choose_due([one.id for one in fleet], known, interval_seconds=0, most=number)
        return [chosen[place % len(chosen)] for place in range(number)] if chosen else []

    async def _wait_for_replica(self) -> RunProblem | None:
        until = monotonic_seconds() + REPLICA_WAIT_SECONDS
        while True:
            problem = replica_problem(await self._consumers(), own_prefix=self._own_prefix)
            if problem is None or monotonic_seconds() > until:
                return problem
            await asyncio.sleep(POLL_SECONDS)

    async def _consumers(self) -> Consumers | None:
        return await read_consumers(partial(count_queue, self._admin), self._api, self._queue)

    async def _follow_to_report(self, course: _Course, incarnation: int) -> CanaryRunReport:
        consumers = None
        try:
            await self._follow(course)
            consumers = await self._consumers()
        except (Unavailable, Contended) as error:
            course.error = str(error)
        is_lost = course.error is not None or self._admin.incarnation != incarnation
        problem = (
            RunProblem.CONNECTION_LOST
            if is_lost
            else expired_problem(
                consumers,
                own_prefix=self._own_prefix,
                received_by={
                    one.received_by for one in course.stored.values() if one.received_by is not None
                },
            )
        )
        return report(
            [
                result_of(
                    one,
                    course.stored.get(one.id),
                    expired_seconds=course.expired_seconds.get(one.id),
                    limit_seconds=self._limit_seconds,
                    problem_if_expired=problem,
                )
                for one in course.published
            ],
            consumers,
            queue=self._queue,
            sent_at=min((one.created_at for one in course.stored.values()), default=None),
            ttl_seconds=self._sender.ttl_seconds,
            limit_seconds=self._limit_seconds,
            own_prefix=self._own_prefix,
            error=course.error,
        )

    async def _follow(self, course: _Course) -> None:
        """Until all are received, or the last one is overdue."""
        longest = self._sender.ttl_seconds + self._limit_seconds
        self._say(f"Canaries sent: {len(course.published)}. Waiting up to {longest:g} s for them.")
        ids = [one.id for one in course.published]
        is_queue_there = True
        while True:
            # Counted before the rows are read: their ages then are upper bounds of when the canaries left. A queue that
            # was deleted is not asked for again: the broker logs each such question.
            counts = await count_queue(self._admin, CANARY_QUEUE) if is_queue_there else None
            is_queue_there = counts is not None
            course.stored, newest_received_age = await store.read_stages(self._database, ids)
            in_order = [course.stored[one] for one in ids if one in course.stored]
            expired = ids_of_expired(
                in_order,
                is_queue_empty=counts is not None and counts.ready == 0,
                newest_received_age=newest_received_age,
            )
            for one in in_order:
                if one.id in expired:
                    # A canary cannot be received before it leaves the canary queue.
                    left_by = one.age_seconds if one.received_seconds is None else one.received_seconds
                    course.expired_seconds.setdefault(one.id, left_by)
            if course.is_over(self._limit_seconds):
                return
            await asyncio.sleep(POLL_SECONDS)

    def _cannot_run(self, problem: RunProblem, explanation: str) -> CanaryRunReport:
        return cannot_run(problem, explanation, queue=self._queue, limit_seconds=self._limit_seconds)
