"""Figures about all flows, for diagnoses and metrics. Read only: there may be thousands of retired workers."""

from dlq_handler.database.engine import Database
from dlq_handler.lifecycle.flow import FlowKind, FlowStatus, StopStep
from dlq_handler.lifecycle.flow_summary import FlowNote, FlowsFact

MOST_NOTES = 100

ABORTED_SECONDS = 86_400.0
"""Time for which an aborted stop is noted: until then its worker may run without a consumer."""


async def read_flows_fact(database: Database, *, is_enabled: bool) -> FlowsFact:
    async with database.transaction() as tx:
        counted = await tx.rows(
            """
            SELECT status, count(*) AS flows, sum(jsonb_array_length(leaked)) AS leaked, sum(archived) AS archived,
                   sum(archived_beyond_limit) AS beyond
              FROM own.flow GROUP BY status
            """
        )
        rows = await tx.rows(
            """
            SELECT id, kind, status, step, worker_id, step_since, last_error, leaked, aborted_at
              FROM own.flow
             WHERE status IN ('starting', 'stopping') OR leaked <> '[]'
                OR aborted_at > clock_timestamp() - make_interval(secs => :kept)
             ORDER BY (status = 'stopping') DESC, step_since, id LIMIT :most
            """,
            kept=ABORTED_SECONDS,
            most=MOST_NOTES,
        )
    by_status = {FlowStatus(row.status): row for row in counted}
    return FlowsFact(
        is_enabled=is_enabled,
        counts={status: by_status[status].flows if status in by_status else 0 for status in FlowStatus},
        leaked=int(sum(row.leaked for row in counted)),
        archived=int(sum(row.archived for row in counted)),
        archived_beyond_limit=int(sum(row.beyond for row in counted)),
        notes=tuple(
            FlowNote(
                id=row.id,
                kind=FlowKind(row.kind),
                status=FlowStatus(row.status),
                step=None if row.step is None else StopStep(row.step),
                worker_id=row.worker_id,
                step_since=row.step_since,
                last_error=row.last_error,
                leaked=tuple(row.leaked),
                aborted_at=row.aborted_at,
            )
            for row in rows
        ),
    )
