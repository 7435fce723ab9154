"""Turn settings and the parts of a running sidecar into the world that its ui listener stands on."""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial

from dlq_handler import compose
from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_probe import QueueCounts, count_queue
from dlq_handler.broker.consume.consumer import QueueConsumer
from dlq_handler.compose import backstop
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.reprocess import Reprocessed, Reprocessor
from dlq_handler.diagnosis.diagnoser import Diagnoser
from dlq_handler.explain.explain import Explanation, explain
from dlq_handler.host.names import REQUESTS_QUEUE
from dlq_handler.operations.operations import Operating
from dlq_handler.settings import Settings
from dlq_handler.settings.servers import management_api_of
from dlq_handler.timeouts.cases import Sights
from dlq_handler.topology.consumers import Consumers, read_consumers
from dlq_handler.web.options import read_token
from dlq_handler.web.own_thread import OtherLoop
from dlq_handler.web.users import Role, Tokens, named_token
from dlq_handler.web.world import SearchTurns, UiWorld
from dlq_handler.workers.sight import WorkerObservation

# The page that releases the brake waits for this answer.
MANAGEMENT_SECONDS = 2.0
# Longer than the broker's own deadlines.
LOOK_SECONDS = 15.0
# Longer than a transaction's own deadline, with the default timeouts.
REPROCESS_SECONDS = 45.0


class _ServicesObservation:
    """Worker queues as the services see them, asked on their loop."""

    def __init__(self, sight: WorkerObservation, services: OtherLoop) -> None:
        self._sight, self._services = sight, services

    async def look(self, worker_ids: Collection[int]) -> Sights:
        return await self._services.call(
            lambda: self._sight.look_quietly(worker_ids), within_seconds=LOOK_SECONDS
        )

    async def longest_ttl_ms(self, worker_ids: Sequence[int] = ()) -> int | None:
        return await self._services.call(
            lambda: self._sight.longest_ttl_ms(worker_ids), within_seconds=LOOK_SECONDS
        )


class _ReprocessorOfServices:
    """Dead letters are reprocessed where the intake processes them: with its brake, its safety gate, its relay."""

    def __init__(self, reprocessor: Reprocessor, services: OtherLoop) -> None:
        self._reprocessor, self._services = reprocessor, services

    async def reprocess(self, record_id: int) -> Reprocessed | None:
        return await self._services.call(
            lambda: self._reprocessor.reprocess(record_id), within_seconds=REPROCESS_SECONDS
        )


def ui_world(
    settings: Settings,
    database: Database,
    *,
    services: OtherLoop,
    diagnoser: Diagnoser,
    reprocessor: Reprocessor | None,
    sight: WorkerObservation,
    link: AdminConnection,
    stop: asyncio.Event,
    source: QueueConsumer[DeadLetter],
) -> UiWorld:
    """`database` belongs to the loop that serves; `reprocessor`, `sight`, `link` and `source` to that of the services.

    `reprocessor` None: in shadow mode nothing is reprocessed. Of the diagnoser only the last answer is read, which is
    replaced as a whole.
    """
    api = management_api_of(settings, timeout_seconds=MANAGEMENT_SECONDS)
    connections = backstop.connection_source(settings)
    own, ui, replica = settings.dlq_handler, settings.dlq_handler.ui, settings.replica

    async def counted(queue: str) -> QueueCounts | None:
        return await services.call(lambda: count_queue(link, queue), within_seconds=LOOK_SECONDS)

    async def story_of(execution_id: int) -> Explanation | None:
        return await explain(
            database,
            execution_id,
            backstop.explain_policy(settings),
            sight=_ServicesObservation(sight, services),
            requests_queue=partial(counted, REQUESTS_QUEUE),
            connections=connections,
        )

    async def intake() -> Consumers | None:
        queue = settings.blueprint.intake_queue
        return await services.call(
            lambda: read_consumers(
                partial(count_queue, link), api, queue, own_unacknowledged=lambda: source.unacknowledged
            ),
            within_seconds=LOOK_SECONDS,
        )

    return UiWorld(
        database=database,
        diagnoser=diagnoser,
        operating=Operating(
            database, None if reprocessor is None else _ReprocessorOfServices(reprocessor, services)
        ),
        explain=story_of,
        brake_policy=compose.brake_policy(settings),
        environment=ui.environment or replica,
        retention=compose.retention_policy(settings),
        history_days=own.retention.history_days,
        ttl_seconds=settings.message_queue.rabbitmq.worker_queue_ttl_ms / 1000,
        replica=replica,
        tokens=ui_tokens(settings),
        count_intake=intake,
        completed_key=own.outbox.routing_key,
        searches=SearchTurns(max(1, ui.pool_size - 1)),
        external_url=ui.external_url,
        host=ui.host,
        is_shadow=own.shadow.enabled,
        runbook_url=ui.runbook_url,
        worker_queues=settings.worker_queues,
        stop=stop,
    )


def ui_tokens(settings: Settings) -> Tokens:
    """Read here and once: the settings were checked, so each file holds one."""
    return Tokens(
        named_token(name=one.name, role=Role(one.role), token=read_token(one.token_file))
        for one in settings.dlq_handler.ui.tokens
    )
