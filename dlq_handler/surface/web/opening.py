"""Turn settings and the parts of a running sidecar into the world that its ui listener stands on."""

import asyncio
from functools import partial

from dlq_handler import compose
from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.broker.dead_letter_source import DeadLetterSource
from dlq_handler.broker.queue_probe import count
from dlq_handler.compose import backstop
from dlq_handler.domain.doctor import Consumers
from dlq_handler.services.diagnoser import Diagnoser
from dlq_handler.services.doctor_broker import look_at_consumers
from dlq_handler.services.explain import Explanation, explain
from dlq_handler.services.operating import Operating
from dlq_handler.services.rejudge import Rejudger
from dlq_handler.services.worker_sight import WorkerSight
from dlq_handler.settings import Settings
from dlq_handler.settings.ui import read_token
from dlq_handler.store.engine import Database
from dlq_handler.surface.web.tokens import Tokens, named_token
from dlq_handler.surface.web.visitor import Role
from dlq_handler.surface.web.world import UiWorld

# The page that releases the brake waits for this answer.
MANAGEMENT_SECONDS = 2.0


def ui_world(
    settings: Settings,
    database: Database,
    *,
    diagnoser: Diagnoser,
    rejudger: Rejudger | None,
    sight: WorkerSight,
    link: AdminLink,
    stop: asyncio.Event,
    source: DeadLetterSource,
) -> UiWorld:
    """`rejudger` None: in shadow mode nothing is judged again."""
    api = compose.management_api(settings, timeout_seconds=MANAGEMENT_SECONDS)
    own, ui, instance = settings.dlq_handler, settings.dlq_handler.ui, compose.instance_name(settings)

    async def story_of(execution_id: int) -> Explanation | None:
        return await explain(
            database,
            execution_id,
            backstop.explain_policy(settings),
            sight=sight,
            requests_queue=partial(count, link, backstop.REQUESTS_QUEUE),
        )

    async def intake() -> Consumers | None:
        queue = compose.blueprint(settings).intake_queue
        return await look_at_consumers(link, api, queue, own_unacknowledged=lambda: source.unacknowledged)

    return UiWorld(
        database=database,
        diagnoser=diagnoser,
        operating=Operating(database, rejudger),
        explain=story_of,
        brake_policy=compose.brake_policy(settings),
        environment=ui.environment or instance,
        retention=compose.retention_policy(settings),
        history_days=own.retention.history_days,
        ttl_seconds=settings.message_queue.rabbitmq.worker_queue_ttl_ms / 1000,
        instance=instance,
        tokens=ui_tokens(settings),
        count_intake=intake,
        completed_key=own.outbox.routing_key,
        external_url=ui.external_url,
        host=ui.host,
        is_shadow=own.shadow.enabled,
        runbook_url=ui.runbook_url,
        worker_queues=compose.names(settings),
        stop=stop,
    )


def ui_tokens(settings: Settings) -> Tokens:
    """Read here and once: the settings were checked, so each file holds one."""
    return Tokens(
        named_token(name=one.name, role=Role(one.role), token=read_token(one.token_file))
        for one in settings.dlq_handler.ui.tokens
    )
