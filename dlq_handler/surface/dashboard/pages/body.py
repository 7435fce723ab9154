"""The raw body of a letter: for who may operate, asked for by a button, and on record."""

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.store import swept
from dlq_handler.surface.dashboard import words
from dlq_handler.surface.dashboard.pages.letter import not_on_record
from dlq_handler.surface.dashboard.shell import render
from dlq_handler.surface.dashboard.site import Site
from dlq_handler.surface.web.roles import needs_operate
from dlq_handler.surface.web.visitor import visitor_of


async def raw_body_page(site: Site, request: Request, letter_id: int) -> Response:
    needs_operate(request)
    body = await site.world.operating.read_body(visitor_of(request).actor, letter_id)
    if body is None:
        swept_at = await swept.letter_swept_at(site.world.database, letter_id)
        raise not_on_record(site, letter_id, swept_at)
    title = f"Raw body of letter {letter_id}"
    context = {
        "title": title,
        "id": letter_id,
        "text": body.decode("utf-8", "backslashreplace"),
        "size": words.size(len(body)),
    }
    return render("body.html", site.shell(request, title, here="/letters"), context)
