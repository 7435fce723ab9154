"""The auditor's own SQL: what changed, what is over, who reports. Reads only."""

from collections.abc import Mapping
from typing import Any

from sandbox.attune.database import Session
from sandbox.auditor.ledger import TERMINAL, Change, TerminalRow

# Numbers are given at INSERT and seen at COMMIT: a change may turn up behind others with higher numbers.
_LATE_COMMITS = 2000

# Of the two records that Attune keeps of each change only this one is numbered. What it does not say is in the row.
_CHANGES = """
SELECT event.id, event.entity_id, event.entity_ref, substr(event.event_type, length('execution.') + 1) AS status,
       execution.worker, execution.result
  FROM audit_event AS event LEFT JOIN execution ON execution.id = event.entity_id
 WHERE event.id > $1 AND event.entity_type = 'execution' ORDER BY event.id
"""

_TERMINAL_ROWS = """
SELECT id, status, updated, md5(result::text) AS result_md5
  FROM execution WHERE status::text = ANY($1::text[])
"""


async def read_changes(session: Session, last_number: int) -> list[Change]:
    """May return rows that were read before: the caller filters them by number."""
    rows = await session.fetch(_CHANGES, last_number - _LATE_COMMITS)
    return [_change(row) for row in rows]


async def read_terminal_rows(session: Session) -> dict[int, TerminalRow]:
    rows = await session.fetch(_TERMINAL_ROWS, list(TERMINAL))
    return {row["id"]: TerminalRow(**row) for row in rows}


async def read_workers(session: Session) -> dict[int, str]:
    """Names by id."""
    rows = await session.fetch("SELECT id, name FROM worker WHERE worker_role = 'action' ORDER BY name")
    return {row["id"]: row["name"] for row in rows}


async def read_cordoned(session: Session) -> list[str]:
    """Names of the workers that get no new work."""
    rows = await session.fetch("SELECT name FROM worker WHERE cordoned ORDER BY name")
    return [row["name"] for row in rows]


async def read_line(session: Session, action_ref: str) -> list[tuple[int, str]]:
    """(execution id, 'active' or 'queued') of an action, in order of the line."""
    rows = await session.fetch(
        """SELECT entry.execution_id, entry.status
             FROM execution_admission_entry AS entry
             JOIN execution_admission_state AS state ON state.id = entry.state_id
             JOIN action ON action.id = state.action_id
            WHERE action.ref = $1 ORDER BY entry.queue_order""",
        action_ref,
    )
    return [(row["execution_id"], row["status"]) for row in rows]


def _change(row: Mapping[str, Any]) -> Change:
    return Change(
        number=row["id"],
        execution_id=row["entity_id"],
        action_ref=row["entity_ref"],
        status=row["status"],
        worker_id=row["worker"],
        ended_by=_ended_by(row["result"]) if row["status"] in TERMINAL else None,
    )


def _ended_by(result: object) -> str:
    """By the words in the result: a letter leaves the queue it died in, a monitor what it rests on."""
    if not isinstance(result, dict):
        return "worker"
    by = result.get("failed_by") or result.get("abandoned_by") or result.get("cancelled_by")
    if by == "dlq_handler":
        return "letter" if "queue" in result else "monitor"
    return str(by) if by else "worker"
