"""Log decisions: each in a line of its own while they are few, otherwise all of a transaction in one line.

A line for each of thousands would hide every other line, and takes a fifth of the time of a batch. The line for all
has the ids to search for; the records have the rest.
"""

from collections.abc import Sequence
from typing import Protocol

import structlog

log = structlog.get_logger()

MOST_SINGLE_LINES = 20


class Decided(Protocol):
    @property
    def outcome(self) -> str: ...

    @property
    def execution_id(self) -> int | None: ...


def log_together(subject: str, decided: Sequence[Decided], *, is_shadow: bool) -> bool:
    """False: they are few, and the caller logs each. `is_shadow`: they are what would have been done."""
    if len(decided) <= MOST_SINGLE_LINES:
        return False
    executions: dict[str, list[int | None]] = {}
    for one in decided:
        executions.setdefault(str(one.outcome), []).append(one.execution_id)
    log.info("batch.decided", subject=subject, count=len(decided), executions=executions, is_shadow=is_shadow)
    return True
