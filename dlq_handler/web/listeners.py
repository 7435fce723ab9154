"""Both listeners of a replica: bound together before anything else, ended together after everything else.

They run in a thread and an event loop of their own: whatever clients do, the loop that processes dead letters turns.
Nothing that belongs to that loop is used here, except through `OtherLoop`. State that is read from there is replaced as
a whole, never changed in place.
"""

import asyncio
import resource
from collections.abc import Sequence

from starlette.types import ASGIApp

from dlq_handler.running import Service
from dlq_handler.tasks import task_group
from dlq_handler.web.connections import Limits
from dlq_handler.web.guard import LARGEST_BODY_BYTES
from dlq_handler.web.listener import Listener, ListenerRefused
from dlq_handler.web.options import HttpOptions, UiOptions
from dlq_handler.web.own_thread import run_in_own_thread
from dlq_handler.web.world import UiWorld

MOST_CONNECTIONS = 256
LEAST_CONNECTIONS = 8
# Broker connections, log, libraries, and files that a command or a reload opens for a moment.
OTHER_DESCRIPTORS = 64


def most_connections(*, pooled: int) -> int:
    """For one listener: a quarter of the descriptors that `pooled` database connections and files leave."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(LEAST_CONNECTIONS, min(MOST_CONNECTIONS, (soft - pooled - OTHER_DESCRIPTORS) // 4))


class Listeners:
    """`ops` and `ui`; `ui` is None where the setting switches it off."""

    def __init__(self, http: HttpOptions, ui: UiOptions, *, connections: int) -> None:
        """Raises `ListenerRefused`, which names the setting of the address that cannot be bound."""
        self.ops = Listener(
            host=http.host,
            port=http.port,
            setting="dlq_handler.http",
            # No request for health, readiness or metrics has a body.
            limits=Limits(connections=connections, body_bytes=0),
        )
        self.ui: Listener | None = None
        if ui.enabled:
            try:
                self.ui = Listener(
                    host=ui.host,
                    port=ui.port,
                    setting="dlq_handler.ui",
                    limits=Limits(connections=connections, body_bytes=LARGEST_BODY_BYTES),
                )
            except ListenerRefused:
                self.ops.close()
                raise


class WebServer:
    def __init__(
        self,
        listeners: Listeners,
        *,
        ops_app: ASGIApp,
        ui_app: ASGIApp,
        world: UiWorld,
        beside: Sequence[Service] = (),
    ) -> None:
        """`beside`: services of the ui, which run on the listeners' loop while the ui is served."""
        self._listeners, self._ops_app, self._ui_app = listeners, ops_app, ui_app
        self._world, self._beside = world, beside

    async def run(self, stop: asyncio.Event) -> None:
        self._world.services.loop.bind(asyncio.get_running_loop())
        await run_in_own_thread(self._serve, stop, name="listeners")

    async def _serve(self, stop: asyncio.Event) -> None:
        ops, ui = self._listeners.ops, self._listeners.ui
        async with task_group() as group:
            group.create_task(ops.run(stop, self._ops_app), name="ops-listener")
            if ui is not None:
                group.create_task(ui.run(stop, self._ui_app), name="ui-listener")
                for service in self._beside:
                    group.create_task(service.run(stop))
            await stop.wait()
            self._world.stop.set()
        await self._world.database.dispose()
