"""/api/v1/executions: create one and announce it, read one, list them."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from dlq_handler.sandbox.attune import messages
from dlq_handler.sandbox.attune.amqp import PublishFailed
from dlq_handler.sandbox.attune.api.errors import ApiError
from dlq_handler.sandbox.attune.api.pages import Page, RowId, asked_page
from dlq_handler.sandbox.attune.database import Row
from dlq_handler.sandbox.attune.service import AttuneService
from dlq_handler.sandbox.attune.telling import Say

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
                       artifact_retention_limit, worker_selector, worker_tolerations, worker_affinity)
SELECT id, ref, $2, $3, $4, $5::text::artifact_retention, $6, $7, $8, $9 FROM action WHERE ref = $1
RETURNING {_COLUMNS}
"""  # noqa: S608 (the columns above)

_LIST = f"""
SELECT {_COLUMNS}, count(*) OVER () AS total
  FROM execution
 WHERE ($1::text IS NULL OR status = $1::text::execution_status) AND ($2::text IS NULL OR action_ref = $2)
 ORDER BY created DESC, id DESC LIMIT $3 OFFSET $4
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


def execution_routes(link: AttuneService, say: Say) -> APIRouter:
    routes = APIRouter(prefix="/api/v1/executions")

    # The second is how the source documents write it.
    @routes.post("/execute", status_code=201)
    @routes.post("", status_code=201)
    async def execute(wanted: ExecuteRequest) -> dict[str, Any]:
        row = await link.database.session.fetchrow(
            _CREATE,
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
            # As in Attune, the row is there and nobody knows of it.
            say(f"execution {row['id']} ({row['action_ref']}) is created and cannot be announced")
            raise ApiError(
                503, f"execution {row['id']} is created, and could not be announced: the broker is away"
            ) from error
        say(f"execution {row['id']} ({row['action_ref']}) is requested")
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

    @routes.get("")
    async def list_page(
        page: Annotated[Page, Depends(asked_page)],
        status: Status | None = None,
        action_ref: str | None = None,
    ) -> dict[str, Any]:
        rows = await link.database.session.fetch(_LIST, status, action_ref, page.page_size, page.offset)
        return page.of([_shown(row) for row in rows], rows[0]["total"] if rows else 0)

    return routes


def _shown(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in _ALWAYS} | {name: row[name] for name in _WHERE_THERE if row[name]}
