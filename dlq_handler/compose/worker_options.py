"""Turn settings into what an operator has to ask for: to empty a gone worker's queue, to mark its row."""

from collections.abc import Sequence

from dlq_handler.broker.connection import BrokerAddress
from dlq_handler.compose import rescue_source
from dlq_handler.services.inactive_marker import InactiveMarker
from dlq_handler.services.judge_letters import LetterJudge
from dlq_handler.services.leadership import Leadership
from dlq_handler.services.outbox_relay import OutboxRelay
from dlq_handler.services.rescue import Rescuer
from dlq_handler.services.service import Service
from dlq_handler.services.worker_watch import WorkerWatch
from dlq_handler.settings import Settings
from dlq_handler.store.engine import Database


def worker_options(
    settings: Settings,
    store: Database,
    address: BrokerAddress,
    *,
    watch: WorkerWatch,
    leadership: Leadership,
    judge: LetterJudge,
    relay: OutboxRelay,
) -> Sequence[Service]:
    """None in shadow mode, which takes and changes nothing."""
    options, services = settings.dlq_handler.worker, list[Service]()
    if settings.dlq_handler.shadow.enabled:
        return services
    if options.rescue:
        rescuer = Rescuer(
            store,
            watch,
            leadership,
            judge,
            relay,
            source_of=lambda worker: rescue_source(settings, address, worker),
        )
        services.append(rescuer)
    if options.mark_inactive:
        services.append(InactiveMarker(store, watch, leadership, judge.gate))
    return services
