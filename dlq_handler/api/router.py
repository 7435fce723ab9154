"""All routes of /api/v1."""

from collections.abc import Iterator

from fastapi import APIRouter, Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from dlq_handler.api.actions import action_routes
from dlq_handler.api.events import event_routes
from dlq_handler.api.fleet import fleet_routes
from dlq_handler.api.flows import flow_routes
from dlq_handler.api.history import group_routes, history_routes
from dlq_handler.api.letters import letter_routes
from dlq_handler.api.state import state_routes
from dlq_handler.web.errors import Refused
from dlq_handler.web.world import UiWorld


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
        flow_routes,
        history_routes,
        event_routes,
        action_routes,
    ):
        router.include_router(routes(world))
    return router


async def knows_parameters(request: Request) -> None:
    """Refuses a parameter that the route does not know: a misspelt filter, ignored, would answer another question."""
    route = request.scope["route"]
    known = set(_names(route.dependant)) if isinstance(route, APIRoute) else set()
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        there_are = f"there are {', '.join(sorted(known))}" if known else "there are none here"
        raise Refused(422, f"{unknown[0]}: no such parameter; {there_are}.")


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _names(inner)
