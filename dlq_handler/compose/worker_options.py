"""Turn settings into what an operator has to ask for: draining the queues of unavailable workers."""

from collections.abc import Sequence

from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.compose import rescue_source
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.dead_letters.commit import LetterDecider
from dlq_handler.dead_letters.drain import Rescuer
from dlq_handler.endings.relay import OutboxRelay
from dlq_handler.running import Service
from dlq_handler.settings import Settings
from dlq_handler.workers.watch import WorkerWatch


def worker_options(
    settings: Settings,
    store: Database,
    address: BrokerAddress,
    *,
    watch: WorkerWatch,
    leadership: Leadership,
    decide: LetterDecider,
    relay: OutboxRelay,
) -> Sequence[Service]:
    """None in shadow mode, which takes and changes nothing."""
    if settings.dlq_handler.shadow.enabled or not settings.dlq_handler.worker.drain_queues:
        return []
    return [
        Rescuer(
            store,
            watch,
            leadership,
            decide,
            relay,
            source_of=lambda worker: rescue_source(settings, address, worker),
        )
    ]
