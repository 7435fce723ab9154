"""Find executions that may be stale: page by page along the host's own index on (status, updated), oldest first.

Promises: one sweep meets each row at most once, because it goes by key and never beyond the moment it began; an idle
one costs the same however many executions there are. Finding locks nothing: who is found is locked by id afterwards,
in the one order that all our transactions keep.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from dlq_handler.domain.execution import ExecutionStatus
from dlq_handler.store.stale_verdicts import IS_REFUSED
from dlq_handler.store.transaction import Transaction

# A row that was changed before this moment has no age that anything could be decided by. A scan must not begin with
# such rows either: those out of Python's range all read as one moment, and a page behind it would be the same again.
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

# Who cannot be stale is passed over here already: to lock the executions of a live worker would hold that worker up.
_FILTERS = {
    ExecutionStatus.SCHEDULED: "",
    ExecutionStatus.RUNNING: "AND e.worker IS NOT NULL AND e.worker <> ALL (CAST(:spared AS bigint[]))",
    ExecutionStatus.CANCELING: "AND e.worker IS NOT NULL",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """As it was found, without a lock: to be judged only once it is locked."""

    id: int
    updated: datetime
    worker_id: int | None


async def page(
    tx: Transaction,
    status: ExecutionStatus,
    *,
    not_after: datetime,
    behind: Candidate | None,
    limit: int,
    spared: Collection[int] = (),
) -> list[Candidate]:
    """The next candidates behind one of the page before, or the oldest ones.

    `spared` are workers whose running executions are not looked at. Those that the database refused to let end are
    left out until they are due again.
    """
    given = {"spared": sorted(spared)} if status is ExecutionStatus.RUNNING else {}
    # By statistics that are minutes old there may be so few that to read and sort them all looks cheap. In a flood that
    # would be done anew for every page; along the index a page costs what it holds.
    await tx.run("SET LOCAL enable_sort = off")
    # A bare literal, because the enum's name is the host's own business, and compared as text no index would serve.
    rows = await tx.rows(
        f"""
        SELECT e.id, e.updated, e.worker AS worker_id FROM execution e
         WHERE e.status = '{status.value}' AND e.updated <= :not_after
           AND e.updated >= :updated AND (e.updated, e.id) > (:updated, CAST(:id AS bigint))
           {_FILTERS[status]}
           AND NOT {IS_REFUSED}
         ORDER BY e.updated, e.id LIMIT :limit
        """,  # noqa: S608  # a member of our own enum
        not_after=not_after,
        updated=behind.updated if behind else _BEGINNING,
        id=behind.id if behind else -1,
        limit=limit,
        **given,
    )
    return [Candidate(id=row.id, updated=row.updated, worker_id=row.worker_id) for row in rows]
