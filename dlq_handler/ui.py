"""Dashboard and API of one replica: the objects that their routes use, and the application. app.py runs them.

FastAPI, the routes of the API and most pages are imported and built at the first request: 10 MB that a replica without
users of the dashboard does not need (a test checks that).
"""

import asyncio
from contextlib import suppress
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.clock import monotonic_seconds
from dlq_handler.dashboard.pages import now
from dlq_handler.dashboard.pages import workers as worker_pages
from dlq_handler.dashboard.site import Site
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.reprocess import Reprocessor
from dlq_handler.diagnosis.diagnoser import Diagnoser
from dlq_handler.errors import Unavailable
from dlq_handler.lifecycle.queue_reader import QueueReader
from dlq_handler.loop import every
from dlq_handler.operations.flow_operations import FlowOperations
from dlq_handler.operations.operations import Operations
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import ui_database_of
from dlq_handler.settings.servers import connection_source_of, management_api_of
from dlq_handler.web.own_thread import OtherLoop
from dlq_handler.web.users import read_tokens
from dlq_handler.web.world import MOST_STREAMS, SearchTurns, Services, UiWorld
from dlq_handler.workers.queue_observer import WorkerQueueObserver

# The page that releases the brake waits for this answer.
MANAGEMENT_SECONDS = 2.0
# Workers come from the last observation, in memory. All other figures cost a dozen statements.
WORKERS_SECONDS = 10.0
FIGURES_SECONDS = 60.0


class UiApp:
    """The application of dashboard and API. The first request builds it and waits for it."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._built: ASGIApp | None = None
        # Browsers ask for a page and its parts at once.
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._turn:
            if self._built is None:
                # In a thread: it takes half a second, and probes are answered meanwhile.
                self._built = await asyncio.to_thread(ui_app, self._site)
            app = self._built
        await app(scope, receive, send)


def ui_app(site: Site) -> ASGIApp:
    from dlq_handler.api.router import api_router  # noqa: PLC0415  only when it is needed, see above
    from dlq_handler.dashboard.router import dashboard_router  # noqa: PLC0415
    from dlq_handler.dashboard.shell import error_page  # noqa: PLC0415
    from dlq_handler.web.application import guarded_app  # noqa: PLC0415

    world = site.world
    return guarded_app(
        world,
        [api_router(world), dashboard_router(site)],
        error_page=partial(error_page, environment=world.environment),
    )


def ui_world(
    settings: Settings,
    *,
    connections: int,
    main_database: Database,
    workers: WorkerQueueObserver,
    link: AdminConnection,
    consumer: QueueConsumer[DeadLetter],
    reprocessor: Reprocessor,
    diagnoser: Diagnoser,
) -> UiWorld:
    """`connections`: the limit of the listener. `main_database` belongs to the loop of the other services. The
    routes read only the last view of the diagnoser.
    """
    own, database = settings.dlq_handler, ui_database_of(settings)
    services = Services(
        loop=OtherLoop(),
        database=database,
        workers=workers,
        link=link,
        management=management_api_of(settings, timeout_seconds=MANAGEMENT_SECONDS),
        consumer=consumer,
        reprocessor=reprocessor,
        connections=connection_source_of(settings),
        queues=QueueReader(main_database, link, management_api_of(settings), settings.queue_names),
        explain_policy=settings.explain_policy,
    )
    return UiWorld(
        options=own.ui,
        database=database,
        diagnoser=diagnoser,
        # Shadow mode reprocesses nothing.
        operating=Operations(database, None if settings.is_shadow else services),
        flow_operations=FlowOperations(
            database,
            own.lifecycle,
            settings.flow_blueprints,
            names=settings.worker_queues,
            is_shadow=settings.is_shadow,
        ),
        services=services,
        brake_policy=settings.dlq_handler.brake,
        retention=settings.retention,
        ttl_seconds=settings.message_queue.rabbitmq.worker_queue_ttl_ms / 1000,
        replica=settings.replica,
        tokens=read_tokens(own.ui),
        completed_key=own.outbox.routing_key,
        # Half of the connections at most, so that streams leave room for pages.
        most_streams=min(MOST_STREAMS, connections // 2),
        searches=SearchTurns(max(1, own.ui.pool_size - 1)),
        is_shadow=settings.is_shadow,
        lifecycle_enabled=own.lifecycle.enabled,
        worker_queues=settings.worker_queues,
    )


class PageRefresher:
    """Reads the figures of the first pages at an interval. In an outage of the database the pages then show figures
    that are seconds old, although no user may have opened them for hours.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._read_at = float("-inf")

    async def run(self, stop: asyncio.Event) -> None:
        await every(WORKERS_SECONDS, self.tick, stop, name="page_refresher")

    async def tick(self) -> None:
        self._site.memory.keep_workers(self._site.world.workers(), at=self._site.world.seen_at)
        if monotonic_seconds() - self._read_at >= FIGURES_SECONDS:
            self._read_at = monotonic_seconds()
            # If the connection is lost, the figures that were read are new, and the others are those of the last time.
            with suppress(Unavailable):
                async with self._site.world.database.one_transaction():
                    await now.read(self._site, "1h")
                    await worker_pages.read(self._site)
