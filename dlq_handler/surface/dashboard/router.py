"""The dashboard's routes. Each asks one page module, and answers with HTML that needs no script."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from dlq_handler.surface.web.world import UiWorld


def dashboard_router(world: UiWorld) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def now() -> HTMLResponse:
        return HTMLResponse(f"<!doctype html><title>dlq-handler</title>{world.environment}")

    return router
