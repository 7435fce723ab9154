"""A page of which nothing is kept, while the database is away."""

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.surface.dashboard.kept import Away
from dlq_handler.surface.dashboard.shell import render
from dlq_handler.surface.dashboard.site import Site


def away_page(site: Site, request: Request, away: Away | None, *, back: tuple[str, str]) -> Response:
    context = {"away": away, "back": back}
    return render("away.html", site.shell(request), context, status=503)
