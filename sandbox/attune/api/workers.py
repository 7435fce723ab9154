"""/api/v1/workers: who there is and how they are; and the line of an action."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends

from sandbox.attune.api.errors import ApiError
from sandbox.attune.api.pages import Page, RowId, asked_page
from sandbox.attune.database import Row
from sandbox.attune.service import AttuneService

_LOADS = ("requested", "scheduling", "scheduled", "running", "canceling")

_PLAIN = (
    *("id", "name", "worker_type", "worker_role", "host", "port", "status", "last_heartbeat"),
    *(
        "heartbeat_age_seconds",
        "cordoned",
        "cordon_reason",
        "cordoned_by",
        "cordoned_at",
        "created",
        "updated",
    ),
)

_WORKERS = """
SELECT worker.*, count(*) OVER () AS total,
       extract(epoch FROM now() - last_heartbeat)::float8 AS heartbeat_age_seconds,
       (SELECT coalesce(jsonb_object_agg(status, executions), '{}')
          FROM (SELECT status, count(*) AS executions FROM execution
                 WHERE execution.worker = worker.id GROUP BY status) AS counted) AS counts
  FROM worker
 WHERE ($1::bigint IS NULL OR id = $1)
   AND ($2::text IS NULL OR worker_role = $2::text::worker_role)
   AND ($3::text IS NULL OR status = $3::text::worker_status)
   AND ($4::boolean IS NULL OR cordoned = $4)
 ORDER BY name LIMIT $5 OFFSET $6
"""

_LINE = """
SELECT action.id AS action_id, action.ref AS action_ref, queue_length, active_count, max_concurrent,
       oldest_enqueued_at, total_enqueued, total_completed, last_updated
  FROM queue_stats JOIN action ON action.id = queue_stats.action_id
 WHERE action.ref = $1
"""


def worker_routes(link: AttuneService, *, stale_after_seconds: float) -> APIRouter:
    routes = APIRouter(prefix="/api/v1")

    def shown(row: Row) -> dict[str, Any]:
        return _shown(row, stale_after_seconds)

    @routes.get("/workers")
    async def list_page(
        page: Annotated[Page, Depends(asked_page)],
        role: Literal["action", "sensor"] | None = None,
        status: Literal["active", "inactive", "busy", "error"] | None = None,
        cordoned: bool | None = None,
    ) -> dict[str, Any]:
        rows = await link.database.session.fetch(
            _WORKERS, None, role, status, cordoned, page.page_size, page.offset
        )
        return page.of([shown(row) for row in rows], rows[0]["total"] if rows else 0)

    @routes.get("/workers/{worker_id}")
    async def read(worker_id: RowId) -> dict[str, Any]:
        """Bare, without a data wrapper, as Attune answers."""
        row = await link.database.session.fetchrow(_WORKERS, worker_id, None, None, None, 1, 0)
        if row is None:
            raise ApiError(404, f"Worker with ID {worker_id} not found")
        return shown(row)

    @routes.get("/actions/{ref}/queue-stats")
    async def line(ref: str) -> dict[str, Any]:
        row = await link.database.session.fetchrow(_LINE, ref)
        if row is None:
            raise ApiError(404, f"No queue statistics for action '{ref}'")
        return {"data": dict(row)}

    return routes


def _shown(row: Row, stale_after_seconds: float) -> dict[str, Any]:
    age = row["heartbeat_age_seconds"]
    is_stale = age is None or age > stale_after_seconds
    capabilities = row["capabilities"] or {}
    load = {status: row["counts"].get(status, 0) for status in _LOADS}
    active = sum(load.values())
    most = capabilities.get("max_concurrent_executions")
    return {
        **{name: row[name] for name in _PLAIN},
        "heartbeat_stale": is_stale,
        "health_state": _health(row, is_stale=is_stale, is_busy=bool(most) and load["running"] >= most),
        "supported_runtimes": capabilities.get("runtimes", []),
        "load": {
            **load,
            "total_active": active,
            "max_concurrent_executions": most,
            "utilization_percent": round(100 * load["running"] / most, 1) if most else None,
            "queue_depth": None,  # Attune does not write it either
        },
    }


def _health(row: Row, *, is_stale: bool, is_busy: bool) -> str:
    if row["cordoned"]:
        return "cordoned"
    if row["status"] in {"error", "inactive"}:
        return str(row["status"])
    if is_stale:
        return "offline"
    return "busy" if is_busy else "active"
