"""The search for orphaned queues as the settings describe it: for a replica, and for a command."""

from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.database.engine import Database
from dlq_handler.lifecycle.orphan_watch import OrphanFinder
from dlq_handler.settings.model import Settings
from dlq_handler.settings.servers import management_api_of


def orphan_finder_of(settings: Settings, database: Database, counter: QueueCounter) -> OrphanFinder:
    return OrphanFinder(
        database,
        counter,
        management_api_of(settings, timeout_seconds=5.0).queue_names,
        names=settings.worker_queues,
        availability=settings.availability,
        after_seconds=settings.dlq_handler.lifecycle.orphans.after_seconds,
    )
