"""Refuse parameters that a route does not know: a misspelt filter, ignored in silence, answers another question."""

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from dlq_handler.surface.web.errors import Refused


async def knows_parameters(request: Request) -> None:
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
