"""What commands open beside the database: services that act for an operator, the queues of workers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.recorder import LetterRecorder
from dlq_handler.dead_letters.reprocess import Reprocessor
from dlq_handler.endings.writers import LiveWriter
from dlq_handler.health import Readiness
from dlq_handler.operations.operations import Operations
from dlq_handler.rooms import new_metrics
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate_service import Gate
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database
from dlq_handler.settings.servers import management_api_of
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
    # A command answers no probe and no scrape: what the services report here is not read.
    own, metrics, readiness = settings.dlq_handler, new_metrics(), Readiness()
    gate = Gate(
        database,
        own.gate,
        unavailable_after_seconds=settings.worker_unavailable_after_seconds,
        readiness=readiness,
        metrics=metrics,
    )
    brake = Brake(
        database,
        own.brake,
        batch_size=own.batch.size,
        replica=settings.replica,
        readiness=readiness,
        metrics=metrics,
    )
    recorder = LetterRecorder(
        settings.record_options,
        metrics,
        gate=gate,
        availability=settings.availability,
    )
    return Reprocessor(database, LiveWriter(gate, brake, relay=None), recorder)


def observe_worker_queues(
    settings: Settings, admin: AdminConnection, *, probes_ttl: bool = True
) -> WorkerQueueObserver:
    return WorkerQueueObserver(
        admin,
        api=management_api_of(settings),
        names=settings.worker_queues,
        confirm_after_seconds=settings.dlq_handler.monitor.confirm_after_seconds,
        probes_ttl=probes_ttl,
    )
