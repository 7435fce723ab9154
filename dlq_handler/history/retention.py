"""Delete old records: resolved dead letters, decisions of the monitor and confirmed completion events after
`dead_letter.ttl_ms`, the history of the chart after `history_days`, all others after `unresolved_days`.

The runner knows no table: it is given all steps, in the order in which they run.
Promises: each table is cleaned by itself, and a stop is obeyed between batches. Never deletes an unresolved dead letter
before its longer time is over, an unconfirmed completion event, or the record that prevents a second publish.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from dlq_handler.database.engine import Database
from dlq_handler.database.expiry_sql import MayGoOn
from dlq_handler.database.leadership import worst_error
from dlq_handler.errors import Unavailable
from dlq_handler.history.options import RetentionPolicy
from dlq_handler.loop import every

log = structlog.get_logger()

_LOOP = "retention"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionStep:
    """The deletion of one kind of record. `delete` takes the age from the policy and returns the number of records."""

    name: str
    delete: Callable[[Database, RetentionPolicy, MayGoOn], Awaitable[int]]
    is_logged: bool = False
    """True: the number is a field of the log event."""


class RetentionRunner:
    def __init__(self, database: Database, policy: RetentionPolicy, steps: Sequence[RetentionStep]) -> None:
        self._database, self._policy, self._steps = database, policy, steps
        self._stop = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        self._stop = stop
        await every(self._policy.interval_seconds, self.tick, stop, name=_LOOP)

    async def tick(self) -> None:
        """Run each step by itself: an error in one does not keep old records in the others. Raise the worst error."""
        counts = {step.name: 0 for step in self._steps if step.is_logged}
        errors: list[Exception] = []
        for step in self._steps:
            if not self._may_go_on():
                break
            try:
                count = await step.delete(self._database, self._policy, self._may_go_on)
            except Exception as error:
                errors.append(error)
                if isinstance(error, Unavailable) and self._database.link_age_seconds == 0:
                    # The database does not answer: all others would only wait for it.
                    break
            else:
                if step.is_logged:
                    counts[step.name] = count
        if any(counts.values()):
            log.info("records.deleted", **counts)
        if errors:
            raise worst_error(errors, loop=_LOOP)

    def _may_go_on(self) -> bool:
        return not self._stop.is_set()
