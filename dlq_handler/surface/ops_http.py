"""The ops listener: /healthz (this loop is alive), /readyz (each part, 503 when one is not), /metrics.

Never: asks a server during a request. A probe that waits for a sick database is one more victim of it.
"""

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
