"""The runner of flows as the settings describe it: for a replica, and for a command that finds no replica running."""

from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.rabbitmq_backend import RabbitMQBackend
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.dead_letters.drain import RetiredQueueDrainer
from dlq_handler.dead_letters.intake import DeadLetterConsumers
from dlq_handler.dead_letters.recorder import LetterRecorder
from dlq_handler.endings.ender import Ender
from dlq_handler.endings.writers import Writer
from dlq_handler.lifecycle.flow_actions import FlowActions
from dlq_handler.lifecycle.observe import FlowObserver
from dlq_handler.lifecycle.runner import FlowRunner
from dlq_handler.safety.gate_service import Gate
from dlq_handler.settings.model import Settings
from dlq_handler.settings.servers import management_api_of


def flow_runner_of(
    settings: Settings,
    database: Database,
    address: BrokerAddress,
    *,
    leadership: Leadership,
    gate: Gate,
    writer: Writer,
    recorder: LetterRecorder,
    consumers: DeadLetterConsumers,
    holder: str,
) -> FlowRunner:
    """`holder` is that of the leadership. The runner has a connection to the broker of its own."""
    own, backend = settings.dlq_handler, RabbitMQBackend(address)
    # Only where it is given: without it a stop relies on AMQP alone, and does not wait for answers that never come.
    management = (
        None if own.broker.management_url is None else management_api_of(settings, timeout_seconds=2.0)
    )
    observer = FlowObserver(
        database, backend, gate, availability=settings.availability, management=management
    )
    drainer = RetiredQueueDrainer(
        database,
        leadership,
        gate,
        Ender(database, writer, recorder, own.batch.size, leadership=leadership),
        consumers=consumers,
        availability=settings.availability,
    )
    actions = FlowActions(
        database, backend, drainer, leadership, observer, options=own.lifecycle, holder=holder
    )
    return FlowRunner(
        database, leadership, observer, actions, own.lifecycle, availability=settings.availability
    )
