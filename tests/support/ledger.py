"""What must be true of every execution when all is over, by the host's own history and an independent witness."""

from collections import Counter
from collections.abc import Collection

from dlq_handler.sandbox.attune.auditor import TERMINAL, Auditor

# Also a change out of a terminal status: nothing may happen to an execution after its end.
_ENDS = """
SELECT entity_id, old_values ->> 'status' AS before, new_values ->> 'status' AS after
  FROM execution_history
 WHERE operation = 'UPDATE' AND entity_id = ANY ($1::bigint[])
   AND (old_values ->> 'status' = ANY ($2::text[]) OR new_values ->> 'status' = ANY ($2::text[]))
"""


async def ended_once(auditor: Auditor, executions: Collection[int]) -> None:
    """Each came to one end, from where nothing led away, and one notice told of it."""
    changes = await auditor.database.session.fetch(_ENDS, list(executions), list(TERMINAL))
    ends = Counter(row["entity_id"] for row in changes)
    assert ends == Counter(executions)
    assert all(row["before"] not in TERMINAL for row in changes)
    notices = await auditor.notice_counts()
    assert {number: notices[number] for number in executions} == dict.fromkeys(executions, 1)
