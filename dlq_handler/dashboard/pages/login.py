"""The form that asks for a token. What is done with it is web/application.py's."""

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard.shell import render
from dlq_handler.dashboard.site import Site
from dlq_handler.web.guard import local_path


async def login_page(site: Site, request: Request) -> Response:
    context = {
        "go_on": local_path(request.query_params.get("next", "/")),
        "is_refused": "refused" in request.query_params,
        "needs_none": not site.world.tokens.are_needed,
    }
    # No diagnosis in the title: who has not shown a token learns nothing.
    return render("login.html", site.shell(request, "Log in · dlq-handler"), context)
