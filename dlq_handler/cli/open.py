"""What commands open beside the database: the services that act for an operator, the queues of workers, the view
collector, the doctor, a canary run.
"""

import getpass
import ipaddress
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import typer

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.rights_probe import NeededRights
from dlq_handler.broker.options import CONSUMER_TAG_PREFIX
from dlq_handler.broker.outgoing import PUBLISH_CHECK_PREFIX
from dlq_handler.broker.publisher import Publisher
from dlq_handler.cli.printing import print_error
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.recorder import LetterRecorder
from dlq_handler.dead_letters.reprocess import Reprocessor
from dlq_handler.diagnosis.ask_replica import RemoteGate
from dlq_handler.diagnosis.collector import ViewCollector
from dlq_handler.diagnosis.doctor import Doctor
from dlq_handler.endings.writers import LiveWriter
from dlq_handler.operations.operation import Actor, Client
from dlq_handler.operations.operations import LONGEST_COMMENT, Changed, Impossible, Operations
from dlq_handler.rooms import new_metrics
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate_service import Gate
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database
from dlq_handler.settings.servers import (
    CALL_TIMEOUT_SECONDS,
    broker_of,
    connection_source_of,
    management_api_of,
    open_publisher,
    view_collector,
)
from dlq_handler.topology.canary import CANARY_EXCHANGE, CANARY_QUEUE
from dlq_handler.topology.canary_runner import CanaryRun
from dlq_handler.topology.canary_sender import CanarySender
from dlq_handler.workers.queue_observer import WorkerQueueObserver


@asynccontextmanager
async def open_operations(settings: Settings) -> AsyncIterator[tuple[Operations, Database]]:
    """With the database that they act on, to read before and afterwards."""
    async with open_database(settings) as database:
        yield (
            Operations(database, None if settings.is_shadow else reprocessor_of(settings, database)),
            database,
        )


def reprocessor_of(settings: Settings, database: Database) -> Reprocessor:
    """Without a relay: a completion event waits in the outbox until a replica publishes it."""
    # A command answers no scrape: what the services count here is not read.
    own, metrics = settings.dlq_handler, new_metrics()
    gate = Gate(
        database,
        own.gate,
        unavailable_after_seconds=settings.worker_unavailable_after_seconds,
        metrics=metrics,
    )
    brake = Brake(
        database,
        own.brake,
        batch_size=own.batch.size,
        replica=settings.replica,
        metrics=metrics,
    )
    recorder = LetterRecorder(
        settings.record_options,
        metrics,
        gate=gate,
        availability=settings.availability,
    )
    return Reprocessor(database, LiveWriter(gate, brake, relay=None), recorder)


def observe_worker_queues(settings: Settings, admin: AdminConnection) -> WorkerQueueObserver:
    return WorkerQueueObserver(
        admin,
        api=management_api_of(settings),
        names=settings.worker_queues,
        confirm_after_seconds=settings.dlq_handler.monitor.confirm_after_seconds,
    )


def actor() -> Actor:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run the command as a user without a name.
        user = f"uid {os.getuid()}"
    return Actor(username=f"{user}@{socket.gethostname()}", client=Client.CLI)


def comment_or_ask(given: str | None) -> str:
    """A person is asked for it; a script must pass it."""
    if given is None and sys.stdin.isatty() and sys.stdout.isatty():
        given = typer.prompt("Comment for the audit")
    comment = checked_comment(given)
    if comment is None:
        raise typer.BadParameter("add --comment TEXT, for the audit", param_hint="--comment")
    return comment


def checked_comment(given: str | None) -> str | None:
    comment = (given or "").strip()
    if len(comment) > LONGEST_COMMENT:
        raise typer.BadParameter(
            f"has {len(comment)} characters; at most {LONGEST_COMMENT} are allowed", param_hint="--comment"
        )
    return comment or None


@contextmanager
def exit_if_refused() -> Iterator[None]:
    """An operation that is refused ends the command with one line and exit code 1."""
    try:
        yield
    except (Changed, Impossible) as refused:
        print_error(str(refused))
        raise typer.Exit(1) from None


LONGEST_LIMIT_SECONDS = 10.0


@asynccontextmanager
async def open_collector(settings: Settings) -> AsyncIterator[ViewCollector]:
    """Connects to the broker only when it is asked."""
    async with (
        open_database(settings) as database,
        AdminConnection(broker_of(settings), call_timeout_seconds=CALL_TIMEOUT_SECONDS) as link,
    ):
        yield _collector(settings, database, link)


def _collector(settings: Settings, database: Database, link: AdminConnection) -> ViewCollector:
    return view_collector(settings, database, link, RemoteGate(ops_url(settings)))


@asynccontextmanager
async def open_canary_run(
    settings: Settings, *, limit_seconds: float, say: Callable[[str], None]
) -> AsyncIterator[CanaryRun]:
    """`say`: progress for people who wait."""
    async with _open_servers(settings) as (database, link, publisher):
        yield _canary_run(settings, database, link, publisher, limit_seconds=limit_seconds, say=say)


@asynccontextmanager
async def open_doctor(
    settings: Settings, *, warnings: Sequence[str], with_canary: bool, say: Callable[[str], None]
) -> AsyncIterator[tuple[ViewCollector, Doctor]]:
    """`say`: progress for people who wait."""
    canary = settings.dlq_handler.canary
    may_run = with_canary and canary.enabled and settings.blueprint.has_intake
    async with _open_servers(settings) as (database, link, publisher):
        limit_seconds = min(canary.limit_seconds, LONGEST_LIMIT_SECONDS)
        run = _canary_run(settings, database, link, publisher, limit_seconds=limit_seconds, say=say)
        doctor = Doctor(
            database,
            link,
            management_api_of(settings, timeout_seconds=CALL_TIMEOUT_SECONDS),
            needed=needed_rights(settings),
            connections=connection_source_of(settings),
            run_limit_seconds=settings.dlq_handler.worker.run_limit_seconds,
            warnings=warnings,
            canary=run if may_run else None,
        )
        yield _collector(settings, database, link), doctor


@asynccontextmanager
async def _open_servers(settings: Settings) -> AsyncIterator[tuple[Database, AdminConnection, Publisher]]:
    address = broker_of(settings)
    async with (
        open_database(settings) as database,
        AdminConnection(address, call_timeout_seconds=CALL_TIMEOUT_SECONDS) as link,
        open_publisher(settings, address) as publisher,
    ):
        yield database, link, publisher


def _canary_run(
    settings: Settings,
    database: Database,
    link: AdminConnection,
    publisher: Publisher,
    *,
    limit_seconds: float,
    say: Callable[[str], None],
) -> CanaryRun:
    ttl_ms, replica = settings.dlq_handler.canary.ttl_ms, settings.replica
    return CanaryRun(
        database,
        link,
        management_api_of(settings, timeout_seconds=CALL_TIMEOUT_SECONDS),
        CanarySender(database, link, publisher, settings.blueprint, ttl_ms=ttl_ms, replica=replica),
        queue=settings.blueprint.intake_queue,
        own_prefix=CONSUMER_TAG_PREFIX,
        limit_seconds=limit_seconds,
        say=say,
    )


def needed_rights(settings: Settings) -> NeededRights:
    """Name by name what `broker_permissions` prints as patterns."""
    plan, has_canary = settings.blueprint, settings.dlq_handler.canary.enabled
    a_worker_queue = settings.worker_queues.queue(1)
    drained = (a_worker_queue,) if settings.dlq_handler.worker.drain_queues else ()
    dead_letter_exchange = plan.dead_letter_exchange
    checked = (f"{PUBLISH_CHECK_PREFIX}0",) if settings.dlq_handler.monitor.enabled else ()
    return NeededRights(
        configured_exchanges=(
            *(exchange.name for exchange in plan.exchanges),
            *((CANARY_EXCHANGE,) if has_canary else ()),
            *checked,
        ),
        configured_queues=(*plan.queues, a_worker_queue, *((CANARY_QUEUE,) if has_canary else ()), *checked),
        written_exchanges=(
            plan.executions_exchange,
            *((CANARY_EXCHANGE, dead_letter_exchange) if has_canary else ()),
            *checked,
        ),
        consumed_queues=(plan.intake_queue, *drained, *((CANARY_QUEUE,) if has_canary else ())),
        bound=(
            *((queue, dead_letter_exchange) for queue in plan.queues),
            *(((CANARY_QUEUE, CANARY_EXCHANGE),) if has_canary else ()),
            *((name, name) for name in checked),
        ),
    )


def ops_url(settings: Settings) -> str:
    """Where a replica with these settings listens. One that listens everywhere is asked on this machine."""
    http = settings.dlq_handler.http
    host = http.host
    try:
        if ipaddress.ip_address(host).is_unspecified:
            host = "::1" if ":" in host else "127.0.0.1"
    except ValueError:
        pass
    return f"http://{f'[{host}]' if ':' in host else host}:{http.port}"
