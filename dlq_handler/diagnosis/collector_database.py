"""The database's part of a view: each question by itself, so that one missing table or right hides nothing else."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database import migrate
from dlq_handler.database.engine import Database
from dlq_handler.database.lease_sql import ServerState, read_lease, read_server
from dlq_handler.diagnosis import status_sql
from dlq_handler.diagnosis.answer import answer_of
from dlq_handler.diagnosis.status_sql import Harm
from dlq_handler.diagnosis.view import (
    OFF,
    WITHOUT_DATABASE,
    AttuneMonitorFact,
    BrakeFact,
    DatabaseFact,
    LeaderFact,
    LettersFact,
    Off,
    OutboxFact,
    RightsFact,
    TablesFact,
    Unknown,
    UnknownCause,
)
from dlq_handler.errors import Unavailable
from dlq_handler.history import events_sql
from dlq_handler.history.event import REPLICA_STOPPED
from dlq_handler.host import unscheduled_sql
from dlq_handler.host.grants_sql import missing_grants
from dlq_handler.host.rights import Feature
from dlq_handler.host.unscheduled_sql import count_requested
from dlq_handler.host.worker import AvailabilityPolicy, RegisteredWorker
from dlq_handler.host.workers_sql import list_workers
from dlq_handler.lifecycle.flow_facts_sql import read_flows_fact
from dlq_handler.lifecycle.flow_summary import FlowsFact
from dlq_handler.safety import brake_sql as brake_store
from dlq_handler.safety.options import BrakeOptions
from dlq_handler.timeouts.options import MonitorOptions
from dlq_handler.topology import canary_sql as canary_store
from dlq_handler.topology.canary import Probe
from dlq_handler.topology.options import CanaryOptions
from dlq_handler.workers import service_observations_sql
from dlq_handler.workers.service_observation import ServiceObservations


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorOptions:
    availability: AvailabilityPolicy
    brake: BrakeOptions
    canary: CanaryOptions | None
    """None: there are none."""
    lease: str | None
    """The name of the leader's; None: the timeout monitor is off."""
    intake_queue: str
    completed_queue: str
    requests_queue: str
    monitor: MonitorOptions
    is_shadow: bool
    attune_monitor_is_enabled: bool
    acts_on_flows: bool = False
    """dlq_handler.lifecycle.enabled."""
    features: Collection[Feature] = ()
    """Those that are enabled and need rights of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    database: DatabaseFact
    at: datetime | None = None
    tables: TablesFact | Unknown = WITHOUT_DATABASE
    rights: RightsFact | Unknown = WITHOUT_DATABASE
    brake: BrakeFact | Unknown = WITHOUT_DATABASE
    leader: LeaderFact | Unknown | Off = WITHOUT_DATABASE
    outbox: OutboxFact | Unknown = WITHOUT_DATABASE
    workers: Sequence[RegisteredWorker] | Unknown = WITHOUT_DATABASE
    """Those that take dispatches."""
    harm: Mapping[int, Harm] | Unknown = WITHOUT_DATABASE
    requested: int | Unknown = WITHOUT_DATABASE
    at_request_limit: int | Unknown = WITHOUT_DATABASE
    letters: LettersFact | Unknown = WITHOUT_DATABASE
    attune_monitor: AttuneMonitorFact | Unknown = WITHOUT_DATABASE
    service_observations: ServiceObservations | Unknown = WITHOUT_DATABASE
    probes: Sequence[Probe] | Unknown = WITHOUT_DATABASE
    flows: FlowsFact | Unknown = WITHOUT_DATABASE


async def collect_from_database(database: Database, options: CollectorOptions) -> DatabaseFacts:
    facts: DatabaseFacts | None = None
    # A question that was cut short is unknown in the facts already.
    with suppress(Unavailable):
        # A transaction for each question would be most of what an idle replica asks of the database.
        async with database.one_transaction():
            facts = await _collect(database, options)
    return facts or _unavailable(database, Unknown("the connection was lost", UnknownCause.UNREACHABLE))


async def _collect(database: Database, options: CollectorOptions) -> DatabaseFacts:
    reached = await answer_of(read_server(database))
    if isinstance(reached, Unknown):
        return _unavailable(database, reached)
    # Again, over the connection that is open by now: connecting may take a while on a database that is quick.
    asked_at = monotonic_seconds()
    server = await answer_of(read_server(database))
    took_seconds = monotonic_seconds() - asked_at
    if isinstance(server, Unknown):
        return _unavailable(database, server)
    tables = await answer_of(_tables(database))
    is_current = isinstance(tables, TablesFact) and tables.problem is None
    facts = DatabaseFacts(
        database=DatabaseFact(is_in_recovery=server.is_in_recovery, answer_seconds=took_seconds),
        at=server.now,
        tables=tables,
        rights=await answer_of(_rights(database, server, options.features, has_own=is_current)),
        brake=await answer_of(_brake(database, options.brake)),
        leader=OFF if options.lease is None else await answer_of(_leader(database, options.lease)),
        outbox=await answer_of(status_sql.waiting_events(database)),
        workers=await answer_of(_workers(database)),
        harm=await answer_of(status_sql.harm_by_worker(database)),
        requested=await answer_of(count_requested(database)),
        at_request_limit=await answer_of(_at_request_limit(database, options.monitor)),
        attune_monitor=await answer_of(
            status_sql.attune_monitor(database, is_enabled=options.attune_monitor_is_enabled)
        ),
        letters=await answer_of(status_sql.unusable_letters(database, requests_queue=options.requests_queue)),
        service_observations=await answer_of(service_observations_sql.read_eventful(database)),
        probes=await answer_of(canary_store.read_probes(database, options.intake_queue)),
        flows=await answer_of(read_flows_fact(database, is_enabled=options.acts_on_flows)),
    )
    if any(isinstance(getattr(facts, field.name), Unknown) for field in fields(facts)):
        # One missing table or right, or an outage that began in between? The second makes all answers unknown.
        answer = await answer_of(database.ping())
        if isinstance(answer, Unknown):
            return _unavailable(database, answer)
    return facts


async def _at_request_limit(database: Database, options: MonitorOptions) -> int:
    """Executions that wait for the scheduler and whose request dlq-handler does not publish again."""
    if options.republish_requests:
        return await unscheduled_sql.count_at_request_limit(database, options.republish_limit)
    return await unscheduled_sql.count_overdue(
        database, older_than_seconds=options.unscheduled_timeout_seconds
    )


def _unavailable(database: Database, answer: Unknown) -> DatabaseFacts:
    outage = database.outage
    return DatabaseFacts(
        database=DatabaseFact(
            error=answer.explanation,
            is_unreachable=answer.cause is UnknownCause.UNREACHABLE,
            since=outage.since if outage else None,
        )
    )


async def _tables(database: Database) -> TablesFact:
    found = await migrate.read_version(database)
    return TablesFact(
        version=found.version, schema=database.own_schema, problem=found.problem, note=found.note
    )


async def _rights(
    database: Database, server: ServerState, features: Collection[Feature], *, has_own: bool
) -> RightsFact:
    # There are no rights on tables that do not exist yet.
    missing = await missing_grants(database, has_own=has_own, features=features)
    return RightsFact(missing=missing, role=server.role)


async def _brake(database: Database, policy: BrakeOptions) -> BrakeFact:
    async with database.transaction() as tx:
        return BrakeFact(view=await brake_store.read_brake(tx), policy=policy)


async def _leader(database: Database, name: str) -> LeaderFact:
    async with database.transaction() as tx:
        lease = await read_lease(tx, name)
        # A replica that stops in good order gives the lease up: then no replica leads since it stopped.
        stopped_at = None if lease else await events_sql.last_at(tx, REPLICA_STOPPED)
    if lease is None:
        return LeaderFact(is_held=False, until=stopped_at)
    return LeaderFact(is_held=lease.is_held, until=lease.until)


async def _workers(database: Database) -> Sequence[RegisteredWorker]:
    return [one for one in await list_workers(database) if one.takes_dispatches]
