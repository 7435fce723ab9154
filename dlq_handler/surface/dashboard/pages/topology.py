"""The topology: for each queue, whether what dies there arrives, and what to type where it does not.

From the last look, a few seconds old: a page that is loaded often must not ask the broker each time.
"""

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.domain.view import OFF, Unknown
from dlq_handler.surface.dashboard.shell import render
from dlq_handler.surface.dashboard.site import Site
from dlq_handler.surface.dashboard.topology_rows import MOST_ROWS, topology_rows
from dlq_handler.surface.dashboard.words import State, thousands


async def topology_page(site: Site, request: Request) -> Response:
    seen = site.world.topology()
    canaries = None if site.view is None else site.view.canaries
    known = (
        {}
        if canaries is None or canaries == OFF or isinstance(canaries, Unknown)
        else {one.worker_id: one for one in canaries}
    )
    rows = () if isinstance(seen, Unknown) else topology_rows(seen.checked, site.world.worker_queues, known)
    shown = [row for row in rows if row.state is not State.WARN]
    context = {
        "unknown": seen.why if isinstance(seen, Unknown) else None,
        "rows": shown[:MOST_ROWS],
        "more": thousands(len(shown) - MOST_ROWS) if len(shown) > MOST_ROWS else None,
        "unrecorded": [row for row in rows if row.state is State.WARN],
        "intake": None if isinstance(seen, Unknown) else seen.checked.intake_queue,
        "limits": () if isinstance(seen, Unknown) else seen.limits,
        "findings": () if isinstance(seen, Unknown) else seen.checked.findings,
        "canaries_off": canaries == OFF,
        "canaries_unknown": canaries.why if isinstance(canaries, Unknown) else None,
        "looked_at": site.looked_at,
    }
    shell = site.shell(request, f"Topology · {site.headline().title}", here="/topology")
    return render("topology.html", shell, context)
