"""Both listeners of a sidecar: bound together before anything else, ended together after everything else.

They run in a thread and an event loop of their own: whatever clients do, the loop that takes dead letters turns.
Nothing that belongs to that loop is used here; what is read from it is replaced as a whole, never changed in place.
"""

import asyncio
import resource
from collections.abc import Callable
from dataclasses import replace

from dlq_handler.compose.ui_app import ui_app
from dlq_handler.health import Readiness
from dlq_handler.metrics import Metrics
from dlq_handler.settings import Settings
from dlq_handler.tasks import task_group
from dlq_handler.web.connections import Limits
from dlq_handler.web.guard import LARGEST_BODY_BYTES
from dlq_handler.web.listener import Listener, ListenerRefused
from dlq_handler.web.ops import ops_app
from dlq_handler.web.own_thread import OtherLoop, run_in_own_thread
from dlq_handler.web.world import MOST_STREAMS, UiWorld

MOST_CONNECTIONS = 256
LEAST_CONNECTIONS = 8
# Broker connections, log, libraries, and what a command or a reload opens for a moment.
OTHER_DESCRIPTORS = 64


class Listeners:
    def __init__(
        self,
        settings: Settings,
        readiness: Readiness,
        metrics: Metrics,
        *,
        ui_world: Callable[[asyncio.Event, OtherLoop], UiWorld],
    ) -> None:
        """`ui_world(stop, services)` is called on the listeners' own loop, which uses and ends its database.

        Raises `ListenerRefused`, which names the one that cannot be had.
        """
        http, own_ui = settings.dlq_handler.http, settings.dlq_handler.ui
        self._ops_app, self._ui_world = ops_app(readiness, metrics), ui_world
        most = self._most = most_connections(settings)
        self._ops = Listener(
            host=http.host,
            port=http.port,
            setting="dlq_handler.http",
            # No request for health, readiness or metrics has a body.
            limits=Limits(connections=most, body_bytes=0),
        )
        self._ui: Listener | None = None
        if own_ui.enabled:
            try:
                self._ui = Listener(
                    host=own_ui.host,
                    port=own_ui.port,
                    setting="dlq_handler.ui",
                    limits=Limits(connections=most, body_bytes=LARGEST_BODY_BYTES),
                )
            except ListenerRefused:
                self._ops.close()
                raise

    @property
    def http_port(self) -> int:
        return self._ops.port

    @property
    def ui_port(self) -> int | None:
        """None: it is switched off."""
        return None if self._ui is None else self._ui.port

    async def run(self, stop: asyncio.Event) -> None:
        services = asyncio.get_running_loop()

        async def serve(own_stop: asyncio.Event) -> None:
            await self._serve(own_stop, OtherLoop(services))

        await run_in_own_thread(serve, stop, name="listeners")

    async def _serve(self, stop: asyncio.Event, services: OtherLoop) -> None:
        world = None
        async with task_group() as group:
            group.create_task(self._ops.run(stop, self._ops_app), name="ops-listener")
            if self._ui is not None:
                # Half of the places at most, so that streams leave room for pages.
                world = replace(
                    self._ui_world(stop, services), most_streams=min(MOST_STREAMS, self._most // 2)
                )
                group.create_task(self._ui.run(stop, ui_app(world)), name="ui-listener")
        if world is not None:
            await world.database.dispose()


def most_connections(settings: Settings) -> int:
    """Of one listener: a quarter of the descriptors that servers and files leave over."""
    own = settings.dlq_handler
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    left = soft - own.database.pool_size - own.ui.pool_size - OTHER_DESCRIPTORS
    return max(LEAST_CONNECTIONS, min(MOST_CONNECTIONS, left // 4))
