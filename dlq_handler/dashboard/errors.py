"""Pages shown instead of the requested one: an error, or the database is unavailable and nothing is kept.

An error page names the next step and the request's id, by which the log is searched.
"""

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from dlq_handler.dashboard.kept import Away
from dlq_handler.dashboard.shell import Shell, render
from dlq_handler.dashboard.site import Site

NEXT_STEPS = {
    401: ("/login", "Log in"),
    403: ("/", "Back to Now"),
    404: ("/letters", "Search the letters"),
    409: ("/", "Back to Now"),
    421: ("/", "Now"),
}


def error_page(request: Request, status: int, title: str, text: str, *, environment: str) -> HTMLResponse:
    """May be shown before any route is reached, so the shell knows neither user nor session."""
    shell = Shell(
        title=f"{title} · dlq-handler",
        environment=environment,
        now=datetime.now(UTC),
    )
    context = {
        "title": title,
        "text": text,
        "code": status,
        "request_id": getattr(request.state, "request_id", None),
        "next_step": NEXT_STEPS.get(status, ("/", "Back to Now")),
    }
    return render("error.html", shell, context, status=status)


def away_page(site: Site, request: Request, away: Away | None, *, back: tuple[str, str]) -> Response:
    """The database is unavailable, and nothing is kept of the requested page."""
    context = {"away": away, "back": back}
    return render("away.html", site.shell(request), context, status=503)
