"""The two listeners of a replica, operations and ui: bound before anything else, ended after everything else.

They run in a thread and an event loop of their own: whatever clients do, the loop that processes dead letters turns.
Nothing that belongs to that loop is used here, except through `OtherLoop`. State that is read from there is replaced as
a whole, never changed in place. A port that is taken ends the start with `ListenerRefused`, which names the setting.
Requests that are open at the end get one more second, so that none delays SIGTERM.
"""

import asyncio
import errno
import resource
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import uvicorn
from pydantic_core import to_jsonable_python
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from dlq_handler.diagnosis.diagnoser import Diagnoser
from dlq_handler.diagnosis.diagnosis import Health
from dlq_handler.health import Readiness
from dlq_handler.loop import Service
from dlq_handler.metrics import CONTENT_TYPE, Metrics
from dlq_handler.safety.gate_service import Gate
from dlq_handler.tasks import task_group
from dlq_handler.web.connections import BACKLOG, BoundedProtocol, Connections, Limits
from dlq_handler.web.guard import LARGEST_BODY_BYTES
from dlq_handler.web.options import HttpOptions, UiOptions
from dlq_handler.web.own_thread import run_in_own_thread
from dlq_handler.web.world import UiWorld

MOST_CONNECTIONS = 256
LEAST_CONNECTIONS = 8
# Broker connections, log, libraries, and files that a command or a reload opens for a moment.
OTHER_DESCRIPTORS = 64


CLOSING_SECONDS = 1
USUAL_LIMITS = Limits(connections=256, body_bytes=65_536)


class ListenerRefused(Exception):
    """The address cannot be listened on: taken, not of this machine, or not allowed."""

    def __init__(self, *, host: str, port: int, setting: str, explanation: str) -> None:
        super().__init__(f"{setting}: cannot listen on {host}:{port}: {explanation}")
        self.host, self.port, self.setting, self.explanation = host, port, setting, explanation


class _Server(uvicorn.Server):
    """uvicorn's server without its way to accept connections, which has no bound."""

    def __init__(self, config: uvicorn.Config, *, name: str, limits: Limits) -> None:
        super().__init__(config)
        self._name, self._limits = name, limits
        self._connections: Connections | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The process has one owner of SIGTERM, and it is not the web server: it would stop the loop under the batch.
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets  # noqa: S101  the listener's own
        self.servers = []
        self._connections = Connections(
            sockets[0],
            name=self._name,
            limits=self._limits,
            protocol=partial(
                BoundedProtocol,
                limits=self._limits,
                config=self.config,
                server_state=self.server_state,
                app_state={},
            ),
        )
        self._connections.start()
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._connections is not None:
            self._connections.stop()
        await super().shutdown(sockets)


class Listener:
    def __init__(
        self,
        *,
        host: str,
        port: int,
        setting: str,
        limits: Limits = USUAL_LIMITS,
    ) -> None:
        self._setting, self._limits = setting, limits
        # Bound here, not in the server: a taken port must end the start with a clear error, not a logged one.
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            # With its protocol named: asyncio sends without delay only where it is, and an answer in two parts, head
            # and body, would wait 40 ms for the acknowledgement of its head.
            self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        except OSError as error:
            raise ListenerRefused(host=host, port=port, setting=setting, explanation=str(error)) from error
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(address)
            # From now on clients wait until serving begins.
            self._socket.listen(BACKLOG)
        except OSError as error:
            self._socket.close()
            explanation = str(error)
            if error.errno == errno.EADDRINUSE:
                explanation += f"; another replica or program uses this port: stop it, or set {setting}.port"
            raise ListenerRefused(host=host, port=port, setting=setting, explanation=explanation) from error

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Give the port back without having served."""
        self._socket.close()

    async def run(self, stop: asyncio.Event, app: ASGIApp) -> None:
        server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                # An upgraded connection would leave the bounds of `Connections`.
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=CLOSING_SECONDS,
            ),
            name=self._setting,
            limits=self._limits,
        )
        async with task_group() as group:
            serving = group.create_task(server.serve(sockets=[self._socket]), name=self._setting)
            await stop.wait()
            server.should_exit = True
            await serving


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


def ops_app(readiness: Readiness, metrics: Metrics, gate: Gate, diagnoser: Diagnoser) -> Starlette:
    """No request asks a server: every answer is what the services know."""

    async def healthz(_: Request) -> Response:
        stalls = readiness.liveness.stalls()
        if not stalls:
            return JSONResponse({"status": "alive"})
        loops = [
            {
                "loop": stall.loop,
                "seconds": round(stall.seconds, 1),
                "limit_seconds": stall.limit_seconds,
            }
            for stall in stalls
        ]
        return JSONResponse({"status": "stalled", "loops": loops}, status_code=503)

    async def readyz(_: Request) -> Response:
        observed = diagnoser.latest
        content = {
            "ready": readiness.is_ready,
            "checks": readiness.checks,
            "gate": gate.state,
            "observed_at": observed and observed.at,
            # Of the view that `status`, pages and API show. None of these makes the replica unready.
            "diagnoses": [one for one in observed.diagnoses if one.health is not Health.OK]
            if observed
            else [],
        }
        return JSONResponse(
            to_jsonable_python(content, fallback=str), status_code=200 if content["ready"] else 503
        )

    async def exposition(_: Request) -> Response:
        return Response(metrics.exposition(), media_type=CONTENT_TYPE)

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/health/live", healthz),
            Route("/health/ready", readyz),
            Route("/metrics", exposition),
        ]
    )
