"""The ops listener: /healthz (503 when a loop no longer turns), /readyz (503 when a part is not ready), /metrics.

Never asks a server during a request: a probe that waits for a slow database would fail with it.
"""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dlq_handler.health import Readiness
from dlq_handler.metrics import CONTENT_TYPE, Metrics


def ops_app(readiness: Readiness, metrics: Metrics) -> Starlette:
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
