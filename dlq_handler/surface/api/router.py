"""All routes of /api/v1."""

from fastapi import APIRouter

from dlq_handler.surface.web.world import UiWorld


def api_router(world: UiWorld) -> APIRouter:  # noqa: ARG001  its routes follow
    return APIRouter(prefix="/api/v1")
