"""The ops listener: /healthz (this loop is alive), /readyz (each part, 503 when one is not), /metrics.

Never: asks a server during a request. A probe that waits for a sick database is one more victim of it.
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dlq_handler.services.readiness import Readiness
from dlq_handler.surface.metrics import CONTENT_TYPE, Metrics


def ops_app(readiness: Readiness, metrics: Metrics) -> Starlette:
    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def readyz(_: Request) -> Response:
        checks = {part: {"ok": check.ok, "detail": check.detail} for part, check in readiness.checks.items()}
        content = {"ready": readiness.is_ready, "checks": checks, "notes": dict(readiness.notes)}
        return JSONResponse(content, status_code=200 if readiness.is_ready else 503)

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


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The process has one owner of SIGTERM, and it is not the web server: it would stop the loop under the batch.
        yield


class OpsListener:
    """Serves until `stop`; open requests get a second, no more: a probe must not hold up SIGTERM."""

    def __init__(self, *, host: str, port: int, readiness: Readiness, metrics: Metrics) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Bound here, not in the server: a taken port must end the start with a clear error, not a logged one.
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError:
            self._socket.close()
            raise
        config = uvicorn.Config(
            ops_app(readiness, metrics),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(self._server.serve(sockets=[self._socket]), name="ops-http")
            await stop.wait()
            self._server.should_exit = True
            await serving
