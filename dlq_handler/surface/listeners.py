"""Both listeners of a sidecar: bound together before anything else, ended together after everything else."""

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp

from dlq_handler.settings import Settings
from dlq_handler.surface.listener import Listener, ListenerRefused

App = Callable[[asyncio.Event], ASGIApp]


class Listeners:
    def __init__(self, settings: Settings, *, ops: App, ui: App) -> None:
        """Raises `ListenerRefused`, which names the one that cannot be had."""
        http, own_ui = settings.dlq_handler.http, settings.dlq_handler.ui
        self._ops = Listener(host=http.host, port=http.port, setting="dlq_handler.http", app=ops)
        self._ui: Listener | None = None
        if own_ui.enabled:
            try:
                self._ui = Listener(host=own_ui.host, port=own_ui.port, setting="dlq_handler.ui", app=ui)
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
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ops.run(stop), name="ops-listener")
            if self._ui is not None:
                group.create_task(self._ui.run(stop), name="ui-listener")
