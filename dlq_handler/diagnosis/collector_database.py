"""The database's part of a view: each question by itself, so that one missing table or right hides nothing else."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Protocol, TypeVar

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database import migrate
from dlq_handler.database.catalog_sql import ServerLook, look_at_server
from dlq_handler.database.engine import Database
from dlq_handler.database.lease_sql import read_lease
from dlq_handler.diagnosis import status_sql
from dlq_handler.diagnosis.attunes_ends import AttunesEnds
from dlq_handler.diagnosis.status_sql import Harm
from dlq_handler.diagnosis.view import (
    DATABASE_AWAY,
    OFF,
    BrakeSeen,
    DatabaseSeen,
    LeaderSeen,
    LettersSeen,
    Off,
    OutboxSeen,
    RightsSeen,
    TablesSeen,
    Unknown,
)
from dlq_handler.history import events_sql
from dlq_handler.history.event import SIDECAR_STOPPED
from dlq_handler.host import unscheduled_sql
from dlq_handler.host.grants_sql import missing_grants
from dlq_handler.host.worker import RegisteredWorker
from dlq_handler.host.workers_sql import list_workers
from dlq_handler.safety import brake_sql as brake_store
from dlq_handler.safety.brake import BrakePolicy
from dlq_handler.timeouts.decide_unscheduled import UnscheduledPolicy
from dlq_handler.topology import canary_sql as canary_store
from dlq_handler.topology.decide_canary import Probe
from dlq_handler.workers import service_looks_sql as service_looks
from dlq_handler.workers.service_look import ServiceLooks

Fact = TypeVar("Fact")


class Ask(Protocol):
    async def __call__(self, asking: Awaitable[Fact], /) -> Fact | Unknown: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    database: DatabaseSeen
    at: datetime | None = None
    tables: TablesSeen | Unknown = DATABASE_AWAY
    rights: RightsSeen | Unknown = DATABASE_AWAY
    brake: BrakeSeen | Unknown = DATABASE_AWAY
    leader: LeaderSeen | Unknown | Off = DATABASE_AWAY
    outbox: OutboxSeen | Unknown = DATABASE_AWAY
    workers: Sequence[RegisteredWorker] | Unknown = DATABASE_AWAY
    """Those that take dispatches."""
    harm: Mapping[int, Harm] | Unknown = DATABASE_AWAY
    requested: int | Unknown = DATABASE_AWAY
    at_request_limit: int | Unknown = DATABASE_AWAY
    letters: LettersSeen | Unknown = DATABASE_AWAY
    attunes_ends: AttunesEnds | Unknown = DATABASE_AWAY
    service_looks: ServiceLooks | Unknown = DATABASE_AWAY
    probes: Sequence[Probe] | Unknown = DATABASE_AWAY


async def look_at_database(
    database: Database,
    *,
    brake: BrakePolicy,
    lease: str | None,
    canary_queue: str,
    requests_queue: str,
    requests: UnscheduledPolicy,
    ask: Ask,
) -> DatabaseFacts:
    reached = await ask(look_at_server(database))
    if isinstance(reached, Unknown):
        return _away(database, reached)
    # Again, over the link that is up by now: to connect may take a while on a database that is quick.
    asked_at = monotonic_seconds()
    server = await ask(look_at_server(database))
    took_seconds = monotonic_seconds() - asked_at
    if isinstance(server, Unknown):
        return _away(database, server)
    tables = await ask(_tables(database))
    is_current = not isinstance(tables, Unknown) and tables.problem is None
    facts = DatabaseFacts(
        database=DatabaseSeen(is_in_recovery=server.is_in_recovery, answer_seconds=took_seconds),
        at=server.now,
        tables=tables,
        rights=await ask(_rights(database, server, has_own=is_current)),
        brake=await ask(_brake(database, brake)),
        leader=OFF if lease is None else await ask(_leader(database, lease)),
        outbox=await ask(status_sql.waiting_notices(database)),
        workers=await ask(_workers(database)),
        harm=await ask(status_sql.harm_by_worker(database)),
        requested=await ask(status_sql.requested_executions(database)),
        at_request_limit=await ask(_at_request_limit(database, requests)),
        attunes_ends=await ask(status_sql.attunes_ends(database)),
        letters=await ask(status_sql.unusable_letters(database, requests_queue=requests_queue)),
        service_looks=await ask(service_looks.eventful_looks(database)),
        probes=await ask(canary_store.read_probes(database, canary_queue)),
    )
    if any(isinstance(getattr(facts, field.name), Unknown) for field in fields(facts)):
        # One missing table or right, or an outage that began in between? The second makes all answers unknown.
        answer = await ask(database.ping())
        if isinstance(answer, Unknown):
            return _away(database, answer)
    return facts


async def _at_request_limit(database: Database, policy: UnscheduledPolicy) -> int:
    """Executions that wait for the scheduler and whose request dlq-handler does not publish again."""
    if policy.republishes:
        return await unscheduled_sql.count_at_request_limit(database, policy.republish_limit)
    return await unscheduled_sql.count_overdue(database, older_than_seconds=policy.timeout_seconds)


def _away(database: Database, trouble: Unknown) -> DatabaseFacts:
    outage = database.outage
    return DatabaseFacts(
        database=DatabaseSeen(trouble=trouble.explanation, since=outage.since if outage else None)
    )


async def _tables(database: Database) -> TablesSeen:
    found = await migrate.read_version(database)
    return TablesSeen(
        version=found.version, schema=database.own_schema, problem=found.problem, note=found.note
    )


async def _rights(database: Database, server: ServerLook, *, has_own: bool) -> RightsSeen:
    # Of tables that are still to be made nobody has a right yet.
    missing = await missing_grants(database, has_own=has_own)
    return RightsSeen(missing=missing, role=server.role)


async def _brake(database: Database, policy: BrakePolicy) -> BrakeSeen:
    async with database.transaction() as tx:
        return BrakeSeen(view=await brake_store.look(tx), policy=policy)


async def _leader(database: Database, name: str) -> LeaderSeen:
    async with database.transaction() as tx:
        lease = await read_lease(tx, name)
        # Given up, as a sidecar does that stops in good order; then that is since when nobody leads.
        stopped_at = None if lease else await events_sql.last_at(tx, SIDECAR_STOPPED)
    if lease is None:
        return LeaderSeen(is_held=False, until=stopped_at)
    return LeaderSeen(is_held=lease.is_held, until=lease.until)


async def _workers(database: Database) -> Sequence[RegisteredWorker]:
    return [one for one in await list_workers(database) if one.takes_dispatches]
