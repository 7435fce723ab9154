"""The shell that every page has, and the one place that turns a page into HTML.

Promises: everything from outside is escaped (autoescape is on for every template, and none marks anything safe); a name
that a template misspells is an error, not a gap.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from dlq_handler.dashboard import words

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"

PAGES = (
    ("Now", "/"),
    ("Letters", "/letters"),
    ("Workers", "/workers"),
    ("Queues", "/queues"),
    ("Flows", "/flows"),
    ("Topology", "/topology"),
    ("Audit", "/audit"),
)


def _version() -> str:
    """Changes with the files, so that a browser may keep them for long and never uses old ones with a new page."""
    digest = hashlib.sha256()
    for file in sorted(STATIC.iterdir()):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:10]


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["pages"] = PAGES
    environment.globals["version"] = _version()
    for filter_ in (
        words.ago,
        words.moment,
        words.thousands,
        words.hm,
        words.hms,
        words.iso,
        words.plain,
        words.size,
        words.unbroken,
    ):
        environment.filters[filter_.__name__] = filter_
    return environment


_ENVIRONMENT = _environment()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    title: str
    environment: str
    now: datetime
    """By the database's clock."""
    here: str | None = None
    """The page of the bar that this one belongs to."""
    after: int | None = None
    """The newest event that is in this page already; None: it does not follow what happens."""
    user: str | None = None
    may_operate: bool = False
    """Offer actions of the role operate; other users read which role is needed."""
    log_out: str | None = None
    """The form's own secret; None: there is no session to end."""
    is_paused: bool = False
    """Shows a moment of the past, and stays there."""
    is_of_now: bool = False
    """A moment of the past was asked for, and this page has none."""


def render(template: str, shell: Shell, context: Mapping[str, Any], *, status: int = 200) -> HTMLResponse:
    text = _ENVIRONMENT.get_template(template).render(shell=shell, now=shell.now, **context)
    # Never from a cache: an old page would hide a new problem.
    return HTMLResponse(text, status_code=status, headers={"Cache-Control": "no-store"})


NEXT_STEPS = {
    401: ("/login", "Log in"),
    403: ("/", "Back to Now"),
    404: ("/letters", "Search the letters"),
    409: ("/", "Back to Now"),
    421: ("/", "Now"),
}


def error_page(request: Request, status: int, title: str, text: str, *, environment: str) -> HTMLResponse:
    """Names the next step and the request's id, by which the log is searched.

    May be shown before any route is reached, so the shell knows neither user nor session.
    """
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
