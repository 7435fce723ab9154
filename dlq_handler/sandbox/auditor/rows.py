"""The auditor's own SQL: what changed, what is over, who reports. Reads only."""

from collections.abc import Mapping
from typing import Any

from dlq_handler.sandbox.attune.auditor import TERMINAL, TerminalRow
from dlq_handler.sandbox.attune.database import Session
from dlq_handler.sandbox.auditor.ledger import Change

# Numbers are given at INSERT and seen at COMMIT: a change may turn up behind others with higher numbers.
_LATE_COMMITS = 2000

_CHANGES = """
SELECT history.id, history.entity_id, history.entity_ref, history.new_values
  FROM execution_history AS history WHERE history.id > $1 ORDER BY history.id
"""

_TERMINAL_ROWS = """
SELECT id, status, updated, md5(result::text) AS result_md5
  FROM execution WHERE status::text = ANY($1::text[])
"""


async def read_changes(session: Session, last_number: int) -> list[Change]:
    """Also some that were read before: whoever asks must know them again."""
    rows = await session.fetch(_CHANGES, last_number - _LATE_COMMITS)
    return [_change(row) for row in rows]


async def read_terminal_rows(session: Session) -> dict[int, TerminalRow]:
    rows = await session.fetch(_TERMINAL_ROWS, list(TERMINAL))
    return {row["id"]: TerminalRow(**row) for row in rows}


async def read_workers(session: Session) -> dict[int, str]:
    """Names by id."""
    rows = await session.fetch("SELECT id, name FROM worker WHERE worker_role = 'action' ORDER BY name")
    return {row["id"]: row["name"] for row in rows}


def _change(row: Mapping[str, Any]) -> Change:
    after: dict[str, Any] = row["new_values"] or {}
    return Change(
        number=row["id"],
        execution_id=row["entity_id"],
        action_ref=row["entity_ref"],
        status=after.get("status"),
        worker_id=after.get("worker"),
        ended_by=_ended_by(after.get("result")) if after.get("status") in TERMINAL else None,
    )


def _ended_by(result: object) -> str:
    """By the words in the result: a letter leaves the queue it died in, a monitor what it rests on."""
    if not isinstance(result, dict):
        return "worker"
    by = result.get("failed_by") or result.get("abandoned_by") or result.get("cancelled_by")
    if by == "dlq_handler":
        return "letter" if "queue" in result else "monitor"
    return str(by) if by else "worker"
