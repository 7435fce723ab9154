"""The audit: what people did, when, why, and what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard.filters import Chip
from dlq_handler.dashboard.shell import render
from dlq_handler.dashboard.site import Site
from dlq_handler.database.engine import Database
from dlq_handler.history import events_sql
from dlq_handler.operations import audit_sql as operations
from dlq_handler.operations.operation import Operation

PAGE_SIZE = 50
LARGEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFacts:
    operations: Sequence[Operation]
    after: int


async def gather(
    database: Database, before: int | None, action: str | None, username: str | None
) -> AuditFacts:
    return AuditFacts(
        after=await events_sql.latest_id(database),
        # One more than is shown: that says whether there is another page.
        operations=await operations.list_operations(
            database, before_id=before, action=action, username=username, limit=PAGE_SIZE + 1
        ),
    )


async def audit_page(site: Site, request: Request) -> Response:
    asked = request.query_params
    text = asked.get("before", "")
    is_number = text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LARGEST_ID
    before = int(text) if is_number else None
    action, username = asked.get("action") or None, asked.get("username") or None
    remembered = await site.ask(
        f"/audit {before} {action} {username}", lambda: gather(site.world.database, before, action, username)
    )
    facts = remembered.facts
    found = facts.operations if facts else ()
    kept = {name: value for name, value in (("action", action), ("username", username)) if value}
    context = {
        "operations": found[:PAGE_SIZE],
        "older": _href({**kept, "before": str(found[PAGE_SIZE - 1].id)}) if len(found) > PAGE_SIZE else None,
        "chips": [
            Chip(text=f"{name}: {value}", href=_href({other: kept[other] for other in kept if other != name}))
            for name, value in kept.items()
        ],
        "away": remembered.away,
    }
    shell = site.shell(request, f"Audit · {site.headline().title}", here="/audit")
    return render("audit.html", shell, context)


def _href(asked: Mapping[str, str]) -> str:
    return f"/audit?{urlencode(asked)}" if asked else "/audit"
