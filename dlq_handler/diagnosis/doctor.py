"""Collect what only `doctor` examines, beside the view: rights, clocks, host tables, restarts, a canary run.

Promises: ends within seconds; one question without an answer ends no other. Changes nothing but the canary's own
exchange, queue and rows.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.rights_probe import NeededRights, missing_rights
from dlq_handler.database.engine import Database
from dlq_handler.database.lease_sql import read_server
from dlq_handler.diagnosis.answer import answer_of
from dlq_handler.diagnosis.doctor_facts import ClockFact, DoctorFacts
from dlq_handler.diagnosis.view import (
    OFF,
    WITHOUT_BROKER,
    WITHOUT_DATABASE,
    Unknown,
    View,
)
from dlq_handler.host.database_state_sql import missing_of_host
from dlq_handler.topology.canary_runner import CanaryRun
from dlq_handler.workers.connection_source import ConnectionSource

# Workers whose connections are read, to find out whether the management API reports them.
_MOST_ASKED = 20

# As many as one round of the replicas' own canaries.
_MOST_CANARIES = 20

# The Date of RabbitMQ's management API has whole seconds and is renewed once a second: it is 0 to 2 s old. Taken as it
# is, the clock of a broker on the same machine would be called 1 or 2 s behind.
_DATE_LAG_SECONDS = 2.0


class Doctor:
    def __init__(
        self,
        database: Database,
        link: AdminConnection,
        api: ManagementApi,
        *,
        needed: NeededRights,
        connections: ConnectionSource | None,
        run_limit_seconds: float,
        warnings: Sequence[str],
        canary: CanaryRun | None,
    ) -> None:
        """`connections` None: workers reconnect, so their restarts cannot be detected. `canary` None: none is run."""
        self._database, self._link, self._api = database, link, api
        self._needed, self._connections, self._canary = needed, connections, canary
        self._facts = DoctorFacts(
            warnings=warnings,
            host_schema=database.host_schema,
            reconnects=connections is None,
            run_limit_seconds=run_limit_seconds,
            restarts=None if connections is None else WITHOUT_BROKER,
            missing_of_host=WITHOUT_DATABASE,
            missing_broker_rights=WITHOUT_BROKER,
            clock=WITHOUT_DATABASE,
            broker_clock=WITHOUT_DATABASE,
        )

    @property
    def database(self) -> Database:
        return self._database

    async def examine(self, view: View) -> DoctorFacts:
        """`view`: collected just before. A server that it found unavailable is not asked again."""
        facts = self._facts
        if view.has_database:
            facts = replace(
                facts,
                missing_of_host=await answer_of(missing_of_host(self._database)),
                clock=await answer_of(self._clock()),
            )
        if view.has_broker:
            facts = replace(
                facts,
                missing_broker_rights=await answer_of(missing_rights(self._link, self._needed)),
                broker_clock=await self._broker_clock(facts.clock),
                restarts=await answer_of(self._restarts(view)),
            )
        return replace(
            facts, canary=OFF if self._canary is None else await self._canary.run(self._count(view))
        )

    @staticmethod
    def _count(view: View) -> int:
        """One for each worker, as far as one round goes."""
        return max(1, min(_MOST_CANARIES, 0 if isinstance(view.workers, Unknown) else len(view.workers)))

    async def _clock(self) -> ClockFact:
        """Of this machine."""
        asked_at = datetime.now(UTC)
        server = await read_server(self._database)
        database = _ahead(server.now, asked_at=asked_at, answered_at=datetime.now(UTC))
        return replace(database, ahead_seconds=-database.ahead_seconds)

    async def _broker_clock(self, clock: ClockFact | Unknown) -> ClockFact | Unknown:
        if isinstance(clock, Unknown):
            return clock
        asked_at = datetime.now(UTC)
        answer = await answer_of(self._api.clock())
        if isinstance(answer, Unknown):
            return answer
        broker = _ahead(answer, asked_at=asked_at, answered_at=datetime.now(UTC))
        return ClockFact(
            ahead_seconds=broker.ahead_seconds + clock.ahead_seconds + _DATE_LAG_SECONDS / 2,
            error_seconds=broker.error_seconds + clock.error_seconds + _DATE_LAG_SECONDS / 2,
        )

    async def _restarts(self, view: View) -> str | None:
        if self._connections is None:
            return None
        ids = (
            ()
            if isinstance(view.workers, Unknown)
            else sorted(one.registered.worker.id for one in view.workers)
        )
        # Without a worker, too, the management API must answer: that a queue is missing is an answer.
        await self._connections.ask(dict.fromkeys((ids or (1,))[:_MOST_ASKED]))
        return self._connections.api_error


def _ahead(clock: datetime, *, asked_at: datetime, answered_at: datetime) -> ClockFact:
    """Of this machine's clock."""
    middle = asked_at + (answered_at - asked_at) / 2
    return ClockFact(
        ahead_seconds=(clock - middle).total_seconds(),
        error_seconds=(answered_at - asked_at).total_seconds() / 2,
    )
