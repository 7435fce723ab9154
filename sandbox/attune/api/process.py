"""The api as a process: the routes behind a bearer token, a link to the broker, and /health without one."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Generator
from typing import Annotated, Any

import uvicorn
from aio_pika.abc import AbstractChannel
from fastapi import Depends, FastAPI, Header
from fastapi.responses import JSONResponse

from sandbox.attune import topology
from sandbox.attune.api.errors import ApiError, answer_errors
from sandbox.attune.api.executions import execution_routes
from sandbox.attune.api.workers import worker_routes
from sandbox.attune.database import DATABASE_TROUBLE
from sandbox.attune.environment import Environment
from sandbox.attune.log_line import PrintLine
from sandbox.attune.service import AttuneService

SHUTDOWN_SECONDS = 3


class Api(AttuneService):
    """It only publishes, so it declares the common infrastructure and no queue of its own."""

    role = "publisher"

    async def _begin(self, channel: AbstractChannel) -> None:
        await topology.declare_common(channel)


def web_app(link: AttuneService, environment: Environment, print_line: PrintLine) -> FastAPI:
    async def check_token(authorization: Annotated[str, Header()] = "") -> None:
        kind, _, token = authorization.partition(" ")
        # Compared in constant time, as bytes: how far a guess was right must not be measurable.
        is_right = secrets.compare_digest(token.encode(), environment.api_token.encode())
        if kind.lower() != "bearer" or not is_right:
            raise ApiError(401, "Missing or invalid bearer token")

    app = FastAPI(title="reference Attune", docs_url=None, redoc_url=None, openapi_url=None)
    answer_errors(app)
    protected = [Depends(check_token)]
    app.include_router(execution_routes(link, print_line), dependencies=protected)
    app.include_router(
        worker_routes(link, stale_after_seconds=environment.times.unavailable_after_seconds),
        dependencies=protected,
    )

    @app.get("/health")
    async def health() -> JSONResponse:
        seen: dict[str, Any] = {"broker": link.is_connected, "database": await _answers(link)}
        is_healthy = all(seen.values())
        return JSONResponse(
            {"status": "ok" if is_healthy else "degraded", **seen}, status_code=200 if is_healthy else 503
        )

    return app


async def _answers(link: AttuneService) -> bool:
    try:
        async with asyncio.timeout(2):
            await link.database.session.fetchval("SELECT 1")
    except DATABASE_TROUBLE:
        return False
    return True


async def run_api(environment: Environment, stop: asyncio.Event, print_line: PrintLine) -> None:
    link = Api(
        environment.amqp_url,
        environment.database_url,
        schema=environment.schema,
        cured=environment.cured,
        print_line=print_line,
        connection_name="api",
        amqp_heartbeat_seconds=environment.times.amqp_heartbeat_seconds,
    )
    try:
        listener = socket.create_server((environment.api_host, environment.api_port))
    except OSError as error:
        raise SystemExit(
            f"cannot listen on {environment.api_host}:{environment.api_port}: {error}"
        ) from error
    server = _QuietServer(
        uvicorn.Config(
            web_app(link, environment, print_line),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(link.run(stop), name="link")
        tasks.create_task(server.serve(sockets=[listener]), name="http")
        print_line(f"listens on http://{environment.api_host}:{environment.api_port}")
        await stop.wait()
        server.should_exit = True


class _QuietServer(uvicorn.Server):
    """Leaves the signals to the process, which ends its parts in its own order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
