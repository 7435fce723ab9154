"""Examine the database: does it answer, are the tables and the rights there, what do its clock and its workers say?

Reads only, and each question by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dlq_handler.database import migrate
from dlq_handler.database.catalog_sql import ServerLook, look_at_server, missing_of_host
from dlq_handler.database.engine import Database
from dlq_handler.diagnosis import doctor_database_lines as says
from dlq_handler.diagnosis.doctor_asking import told
from dlq_handler.diagnosis.doctor_lines import without_database
from dlq_handler.diagnosis.observation import Observation
from dlq_handler.diagnosis.view import TablesSeen
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host.grants_sql import missing_grants
from dlq_handler.host.worker import Worker
from dlq_handler.host.workers_sql import read_fleet
from dlq_handler.workers.availability import is_history

# What needs an answer of the database to be told.
_RESTING_ON_IT = (
    says.HOST_TABLES,
    says.OWN_TABLES,
    says.DATABASE_RIGHTS,
    says.MACHINE_CLOCK,
    says.WORKERS,
    says.WORKER_CLOCKS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """By how much a clock is ahead of this machine's, and how far off that may be."""

    ahead_seconds: float
    error_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseExam:
    observations: tuple[Observation, ...]
    fleet: Sequence[Worker] | None = None
    """None: nobody could tell who is registered."""
    clock: Reading | None = None
    is_current: bool = False
    """Whether our own tables are there, as this program wants them."""


def reading(clock: datetime, *, asked_at: datetime, answered_at: datetime) -> Reading:
    middle = asked_at + (answered_at - asked_at) / 2
    return Reading(
        ahead_seconds=(clock - middle).total_seconds(),
        error_seconds=(answered_at - asked_at).total_seconds() / 2,
    )


async def examine_database(database: Database) -> DatabaseExam:
    asked_at = datetime.now(UTC)
    try:
        server = await look_at_server(database)
    except (Unavailable, Contended) as error:
        what = error.what if isinstance(error, Unavailable) else str(error)
        return DatabaseExam(
            observations=(says.database(what), *(without_database(looked) for looked in _RESTING_ON_IT))
        )
    clock = reading(server.now, asked_at=asked_at, answered_at=datetime.now(UTC))
    own = await told(says.OWN_TABLES, _own_tables(database))
    is_current = own.fix is None
    fleet, about_workers = await _workers(database)
    return DatabaseExam(
        observations=(
            says.database(None, is_in_recovery=server.is_in_recovery),
            await told(says.HOST_TABLES, _host_tables(database)),
            own,
            await told(
                says.DATABASE_RIGHTS,
                _rights(database, server, has_own=is_current),
            ),
            says.machine_clock(-clock.ahead_seconds, error_seconds=clock.error_seconds),
            *about_workers,
        ),
        fleet=fleet,
        clock=clock,
        is_current=is_current,
    )


async def _host_tables(database: Database) -> Observation:
    return says.host_tables(await missing_of_host(database), schema=database.host_schema)


async def _own_tables(database: Database) -> Observation:
    found = await migrate.read_version(database)
    return says.own_tables(
        TablesSeen(version=found.version, schema=database.own_schema, problem=found.problem, note=found.note)
    )


async def _rights(database: Database, server: ServerLook, *, has_own: bool) -> Observation:
    # Of tables that are still to be made nobody has a right yet.
    missing = await missing_grants(database, has_own=has_own)
    return says.database_rights(missing, role=server.role)


async def _workers(database: Database) -> tuple[list[Worker] | None, tuple[Observation, ...]]:
    try:
        fleet = await read_fleet(database)
    except (Unavailable, Contended) as error:
        fix = "repair that first, then ask again"
        lines = (says.WORKERS.unknown(str(error), fix), says.WORKER_CLOCKS.unknown(str(error), fix))
        return None, lines
    reporting = [worker for worker in fleet if not is_history(worker)]
    ahead = {worker.id: -(worker.heartbeat_age_seconds or 0.0) for worker in reporting}
    return fleet, (says.workers(len(fleet), len(reporting)), says.worker_clocks(ahead))
