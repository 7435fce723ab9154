"""The one statement that changes an execution. Every way of ending one comes through here, guarded and counted."""

from collections.abc import Sequence

from dlq_handler.database.jsonb import as_jsonb
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.ending import Ending
from dlq_handler.host.execution import ExecutionStatus, may_become


async def end_executions(tx: Transaction, endings: Sequence[Ending]) -> set[int]:
    """End those that are still exactly as they were read; the answer names those really changed."""
    changed: set[int] = set()
    for becomes in sorted({ending.becomes for ending in endings}):
        alike = [ending for ending in endings if ending.becomes is becomes]
        changed |= await _end_alike(tx, becomes, sorted(alike, key=lambda ending: ending.execution.id))
    return changed


async def _end_alike(tx: Transaction, becomes: ExecutionStatus, endings: Sequence[Ending]) -> set[int]:
    # The new status is a bare literal, and the old one compared as text: the enum's name is the host's own business.
    # What may become of what is asked here once more, so that no decide can talk the statement into more. Counted in
    # the same statement, so that the brake cannot be forgotten, and costs no trip to the server.
    rows = await tx.rows(
        f"""
        WITH ended AS (
            UPDATE execution e SET status = '{becomes.value}', result = CAST(wanted.result AS jsonb)
              FROM unnest(CAST(:ids AS bigint[]), CAST(:statuses AS text[]), CAST(:updated AS timestamptz[]),
                          CAST(:results AS text[]))
                   AS wanted(id, status, updated, result)
             WHERE e.id = wanted.id AND CAST(e.status AS text) = wanted.status AND e.updated = wanted.updated
               AND CAST(e.status AS text) = ANY (CAST(:open AS text[]))
            RETURNING e.id),
        counted AS (
            INSERT INTO own.change_count (at, changed)
            SELECT clock_timestamp(), count(*) FROM ended HAVING count(*) > 0)
        SELECT id FROM ended
        """,  # noqa: S608  # a member of our own enum
        ids=[ending.execution.id for ending in endings],
        statuses=[ending.execution.status.value for ending in endings],
        updated=[ending.execution.updated for ending in endings],
        results=[as_jsonb(ending.result) for ending in endings],
        open=[status.value for status in may_become(becomes)],
    )
    return {row.id for row in rows}
