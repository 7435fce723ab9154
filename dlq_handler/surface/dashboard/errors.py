"""An error, in the shell that every page has: what is, and what to do next."""

from html import escape

from fastapi import Request
from fastapi.responses import HTMLResponse


def error_page(request: Request, status: int, title: str, text: str) -> HTMLResponse:
    """`request.state.request_id` is shown where there is one: it is what a log line is found by."""
    number = getattr(request.state, "request_id", None)
    shown = f"<p>request {escape(str(number))}</p>" if number else ""
    return HTMLResponse(
        f"<!doctype html><title>{escape(title)}</title><h1>{escape(title)}</h1><p>{escape(text)}</p>{shown}",
        status_code=status,
    )
