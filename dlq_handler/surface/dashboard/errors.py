"""An error, in the shell that every page has: what is, what to do next, and the id by which the log is found."""

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import HTMLResponse

from dlq_handler.surface.dashboard.shell import Shell, render

NEXT_STEPS = {
    401: ("/login", "Log in"),
    403: ("/", "Back to Now"),
    404: ("/letters", "Search the letters"),
    409: ("/", "Look again"),
    410: ("/letters", "Letters that are on record"),
    421: ("/", "Now"),
}


def error_page(request: Request, status: int, title: str, text: str) -> HTMLResponse:
    world = getattr(request.app.state, "world", None) if "app" in request.scope else None
    shell = Shell(
        title=f"{title} · dlq-handler",
        environment=getattr(world, "environment", ""),
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
