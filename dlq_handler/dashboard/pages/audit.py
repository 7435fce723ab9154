"""The audit: what people did, when, why, and what came of it."""

from collections.abc import Mapping
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard.filters import Chip, read_id
from dlq_handler.dashboard.shell import render
from dlq_handler.dashboard.site import Site
from dlq_handler.operations import audit_sql

PAGE_SIZE = 50


async def audit_page(site: Site, request: Request) -> Response:
    asked = request.query_params
    before = read_id(asked.get("before"))
    action, username = asked.get("action") or None, asked.get("username") or None
    remembered = await site.ask(
        f"/audit {before} {action} {username}",
        # One more than is shown: that says whether there is another page.
        lambda: audit_sql.list_operations(
            site.world.database, before_id=before, action=action, username=username, limit=PAGE_SIZE + 1
        ),
    )
    found = remembered.facts or ()
    kept = {name: value for name, value in (("action", action), ("username", username)) if value}
    context = {
        "operations": found[:PAGE_SIZE],
        "older": _href({**kept, "before": str(found[PAGE_SIZE - 1].id)}) if len(found) > PAGE_SIZE else None,
        "chips": [
            Chip(text=f"{name}: {value}", href=_href({other: kept[other] for other in kept if other != name}))
            for name, value in kept.items()
        ],
        "outage": remembered.outage,
    }
    shell = site.shell(request, f"Audit · {site.headline().title}", here="/audit")
    return render("audit.html", shell, context)


def _href(asked: Mapping[str, str]) -> str:
    return f"/audit?{urlencode(asked)}" if asked else "/audit"
