"""/api/v1/executions: create one and request it, read one, list them, cancel one."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from sandbox.attune import messages
from sandbox.attune.amqp import PublishFailed
from sandbox.attune.api.errors import ApiError
from sandbox.attune.api.pages import Page, RowId, asked_page
from sandbox.attune.database import Row
from sandbox.attune.defects import Defect
from sandbox.attune.executor import as_attune_writes
from sandbox.attune.log_line import PrintLine
from sandbox.attune.service import AttuneService

Status = Literal[
    "requested",
    "scheduling",
    "scheduled",
    "running",
    "completed",
    "failed",
    "canceling",
    "cancelled",
    "timeout",
    "abandoned",
]

_ALWAYS = (
    *("id", "action", "action_ref", "config", "parent", "enforcement"),
    *("executor", "worker", "status", "result", "created", "updated"),
)
_WHERE_THERE = (
    *("started_at", "workflow_task", "original_execution", "permission_set_refs"),
    *("worker_selector", "worker_tolerations", "worker_affinity"),
)
_COLUMNS = ", ".join((*_ALWAYS, *_WHERE_THERE))

_CREATE = f"""
INSERT INTO execution (action, action_ref, config, env_vars, permission_set_refs, artifact_retention_policy,
                       artifact_retention_limit, worker_selector, worker_tolerations, worker_affinity,
                       workflow_task, workflow_def)
SELECT id, ref, $2, $3, $4, $5::text::artifact_retention, $6, $7, $8, $9, {{no_task}}, {{workflow_def}}
  FROM action WHERE ref = $1
RETURNING {_COLUMNS}
"""  # noqa: S608 (the columns above)

_LIST = f"""
SELECT {_COLUMNS}, count(*) OVER () AS total
  FROM execution
 WHERE ($1::text IS NULL OR status = $1::text::execution_status) AND ($2::text IS NULL OR action_ref = $2)
 ORDER BY created DESC, id DESC LIMIT $3 OFFSET $4
"""  # noqa: S608 (the columns above)


# Nothing that waits is asked: what has not begun is over at once, what runs is asked to end.
_CANCEL = f"""
UPDATE execution SET status = CASE WHEN status = 'running' THEN 'canceling' ELSE 'cancelled' END::execution_status
 WHERE id = $1 AND status IN ('requested', 'scheduling', 'scheduled', 'running')
RETURNING {_COLUMNS}
"""  # noqa: S608 (the columns above)


class ExecuteRequest(BaseModel):
    action_ref: str = Field(min_length=1)
    parameters: dict[str, Any] | None = None
    env_vars: dict[str, str] | None = None
    permission_set_refs: list[str] = []
    artifact_retention_policy: Literal["versions", "days", "hours", "minutes"] | None = None
    artifact_retention_limit: Annotated[int, Field(gt=0)] | None = None
    worker_selector: dict[str, Any] | None = None
    worker_tolerations: list[Any] | None = None
    worker_affinity: dict[str, Any] | None = None


def execution_routes(link: AttuneService, print_line: PrintLine) -> APIRouter:
    routes = APIRouter(prefix="/api/v1/executions")

    # The second is how the source documents write it.
    @routes.post("/execute", status_code=201)
    @routes.post("", status_code=201)
    async def execute(wanted: ExecuteRequest) -> dict[str, Any]:
        row = await link.database.session.fetchrow(
            as_attune_writes(_CREATE, link.cured),
            wanted.action_ref,
            wanted.parameters,
            wanted.env_vars,
            wanted.permission_set_refs,
            wanted.artifact_retention_policy,
            wanted.artifact_retention_limit,
            wanted.worker_selector,
            wanted.worker_tolerations,
            wanted.worker_affinity,
        )
        if row is None:
            raise ApiError(404, f"Action '{wanted.action_ref}' not found")
        try:
            await link.publish(
                messages.execution_requested(
                    execution_id=row["id"],
                    action_id=row["action"],
                    action_ref=row["action_ref"],
                    config=row["config"],
                    source="api-service",
                )
            )
        except PublishFailed as error:
            print_line(
                f"execution {row['id']} ({row['action_ref']}) is created, and its request is not published"
            )
            if Defect.PUBLISH_500 not in link.cured:
                raise ApiError(500, "Failed to publish the execution request") from error
            await link.database.session.execute("DELETE FROM execution WHERE id = $1", row["id"])
            raise ApiError(503, "the broker is away; no execution was created") from error
        print_line(f"execution {row['id']} ({row['action_ref']}) is requested")
        return {"data": _shown(row)}

    @routes.get("/{execution_id}")
    async def read(execution_id: RowId) -> dict[str, Any]:
        row = await link.database.session.fetchrow(
            f"SELECT {_COLUMNS} FROM execution WHERE id = $1",  # noqa: S608 (the columns above)
            execution_id,
        )
        if row is None:
            raise ApiError(404, f"Execution with ID {execution_id} not found")
        return {"data": _shown(row)}

    @routes.post("/{execution_id}/cancel")
    async def cancel(execution_id: RowId) -> dict[str, Any]:
        row = await link.database.session.fetchrow(_CANCEL, execution_id)
        if row is None:
            found = (await read(execution_id))["data"]
            raise ApiError(400, f"Cannot cancel execution {execution_id}: it is {found['status']}")
        print_line(f"execution {execution_id} is {row['status']}")
        if row["status"] == "canceling":
            await link.publish(messages.cancel_requested(execution_id=execution_id, worker_id=row["worker"]))
        elif Defect.D14 in link.cured:
            await _end_cancelled(link, row)
        return {"data": _shown(row)}

    @routes.get("")
    async def list_page(
        page: Annotated[Page, Depends(asked_page)],
        status: Status | None = None,
        action_ref: str | None = None,
    ) -> dict[str, Any]:
        rows = await link.database.session.fetch(_LIST, status, action_ref, page.page_size, page.offset)
        return page.of([_shown(row) for row in rows], rows[0]["total"] if rows else 0)

    return routes


async def _end_cancelled(link: AttuneService, row: Row) -> None:
    """The cure of D14: it leaves the line, and the consumer of its completion event frees its slot, if any."""
    await link.database.session.execute(
        "DELETE FROM execution_admission_entry WHERE execution_id = $1 AND status = 'queued'", row["id"]
    )
    await link.publish(
        messages.execution_completed(
            execution_id=row["id"],
            action_id=row["action"],
            action_ref=row["action_ref"],
            status="cancelled",
            source="api-service",
        )
    )


def _shown(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in _ALWAYS} | {name: row[name] for name in _WHERE_THERE if row[name]}
