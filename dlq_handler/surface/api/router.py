"""All routes of /api/v1."""

from fastapi import APIRouter, Depends
from fastapi.security import HTTPBearer

from dlq_handler.surface.api.acts import act_routes
from dlq_handler.surface.api.events import event_routes
from dlq_handler.surface.api.fleet import fleet_routes
from dlq_handler.surface.api.groups import group_routes
from dlq_handler.surface.api.history import history_routes
from dlq_handler.surface.api.letters import letter_routes
from dlq_handler.surface.api.parameters import knows_parameters
from dlq_handler.surface.api.state import state_routes
from dlq_handler.surface.web.world import UiWorld


def api_router(world: UiWorld) -> APIRouter:
    # For the description only: the guard has asked for the token before any route is reached.
    bearer = HTTPBearer(
        auto_error=False, description="One of dlq_handler.ui.tokens; none where there are none."
    )
    router = APIRouter(prefix="/api/v1", dependencies=[Depends(bearer), Depends(knows_parameters)])
    for routes in (
        state_routes,
        letter_routes,
        group_routes,
        fleet_routes,
        history_routes,
        event_routes,
        act_routes,
    ):
        router.include_router(routes(world))
    return router
