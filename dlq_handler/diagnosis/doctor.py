"""Examine everything that an execution's rescue depends on, and say what is wrong and what to do.

Promises: ends within seconds; a server that is away is one problem, and everything that rests on it is "unknown".
Never: takes a letter, or changes anything but the canary's own exchange, queue and rows.
"""

import asyncio
from collections.abc import Callable, Sequence

from dlq_handler.database.engine import Database
from dlq_handler.diagnosis import doctor_lines as says
from dlq_handler.diagnosis.doctor_broker import BrokerExam, BrokerExaminer
from dlq_handler.diagnosis.doctor_canary import CanaryExaminer
from dlq_handler.diagnosis.doctor_database import DatabaseExam, examine_database
from dlq_handler.diagnosis.observation import Observation
from dlq_handler.tasks import task_group
from dlq_handler.topology.finding import Expectation
from dlq_handler.workers.availability import is_history


class Doctor:
    def __init__(
        self,
        database: Database,
        broker: BrokerExaminer,
        canary: CanaryExaminer | None,
        *,
        warnings: Sequence[str],
        expectation: Callable[[frozenset[int] | None], Expectation],
    ) -> None:
        """`expectation(worker_ids)`: what the broker should look like. `canary` is None when none is wanted."""
        self._database, self._broker, self._canary = database, broker, canary
        self._warnings, self._expectation = warnings, expectation

    async def examine(self) -> list[Observation]:
        async with task_group() as servers:
            # Side by side: each may take seconds to find that nobody answers.
            about_database = servers.create_task(examine_database(self._database))
            about_broker = servers.create_task(self._examine_broker(about_database))
        database, broker = about_database.result(), about_broker.result()
        observations = [says.settings(self._warnings), *database.observations, *broker.observations]
        if self._canary is not None:
            observations.append(await self._examine_canary(self._canary, database, broker))
        return observations

    async def _examine_broker(self, about_database: asyncio.Task[DatabaseExam]) -> BrokerExam:
        await self._broker.reach()
        database = await about_database
        fleet = database.fleet
        worker_ids = None if fleet is None else frozenset(worker.id for worker in fleet)
        return await self._broker.examine(self._expectation(worker_ids), database.clock)

    @staticmethod
    async def _examine_canary(
        canary: CanaryExaminer, database: DatabaseExam, broker: BrokerExam
    ) -> Observation:
        if database.fleet is None:
            return says.without_database(says.CANARY)
        if not broker.is_up:
            return says.without_broker(says.CANARY)
        if not database.is_current:
            return says.canary((), "our own tables, in which its arrival is noted, are not there")
        workers = [worker.id for worker in database.fleet if not is_history(worker)]
        return await canary.examine(workers, broker.intake)
