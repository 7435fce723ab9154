"""What must be true of every execution when all is over, by the host's own history and an independent witness."""

from collections import Counter
from collections.abc import Collection

from sandbox.auditor.ledger import TERMINAL
from tests.support.auditor import Auditor

# Also a change out of a terminal status: nothing may happen to an execution after its end.
_ENDS = """
SELECT entity_id, old_values ->> 'status' AS before, new_values ->> 'status' AS after
  FROM execution_history
 WHERE operation = 'UPDATE' AND entity_id = ANY ($1::bigint[])
   AND (old_values ->> 'status' = ANY ($2::text[]) OR new_values ->> 'status' = ANY ($2::text[]))
"""


async def ended_once(
    auditor: Auditor, executions: Collection[int], *, may_repeat_notices: bool = False
) -> None:
    """Each came to one end, from where nothing led away, and one notice told of it.

    A notice may repeat, with the same id, where the database went away between its confirmation and its mark.
    """
    changes = await auditor.database.session.fetch(_ENDS, list(executions), list(TERMINAL))
    ends = Counter(row["entity_id"] for row in changes)
    assert ends == Counter(executions)
    assert all(row["before"] not in TERMINAL for row in changes)
    notices = [notice for notice in await auditor.notices() if notice.execution_id in set(executions)]
    told = {(notice.execution_id, notice.message_id) for notice in notices}
    assert Counter(number for number, _ in told) == Counter(executions)
    if not may_repeat_notices:
        assert len(notices) == len(told)
