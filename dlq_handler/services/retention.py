"""Delete old records: resolved dead letters, decisions of the monitor and confirmed completion events after
`dead_letter.ttl_ms`, the history of the chart after `history_days`, all others after `unresolved_days`.

Promises: each table is cleaned by itself, and a stop is obeyed between batches. Never deletes an unresolved dead letter
before its longer time is over, an unconfirmed completion event, or the record that prevents a second publish.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial

import structlog

from dlq_handler.errors import Unavailable
from dlq_handler.services.every import every
from dlq_handler.services.worst_error import worst_error
from dlq_handler.store import (
    diagnoses,
    happenings,
    history,
    letter_groups,
    letters,
    operations,
    outbox,
    repeated_requests,
    stale_verdicts,
    swept,
    worker_looks,
)
from dlq_handler.store.engine import Database

log = structlog.get_logger()

_LOOP = "retention-sweeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    resolved_seconds: float
    unresolved_seconds: float
    interval_seconds: float
    history_seconds: float = 7 * 86_400.0

    @property
    def longest_seconds(self) -> float:
        """A letter that was resolved on its last day is kept for as long as any other, and its group with it."""
        return self.unresolved_seconds + self.resolved_seconds


class RetentionSweeper:
    def __init__(self, database: Database, policy: RetentionPolicy) -> None:
        self._database, self._policy = database, policy
        self._stop = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        self._stop = stop
        await every(self._policy.interval_seconds, self.tick, stop, name=_LOOP)

    async def tick(self) -> None:
        """Each table by itself: an error in one does not keep old records in the others. The worst error is raised."""
        counts: dict[str, int] = {}
        errors: list[Exception] = []
        for name, delete in self._steps():
            if not self._may_go_on():
                break
            try:
                counts[name] = await delete()
            except Exception as error:
                errors.append(error)
                if isinstance(error, Unavailable) and self._database.link_age_seconds == 0:
                    # The database does not answer: all others would only wait for it.
                    break
        told = {name: counts.get(name, 0) for name in ("resolved", "unresolved", "notices", "verdicts")}
        if any(told.values()):
            log.info("records.swept", **told)
        if errors:
            raise worst_error(errors, loop=_LOOP)

    def _may_go_on(self) -> bool:
        return not self._stop.is_set()

    def _steps(self) -> Iterator[tuple[str, Callable[[], Awaitable[int]]]]:
        """What is deleted, in this order, and how."""
        policy, database, may_go_on = self._policy, self._database, self._may_go_on
        resolved, unresolved = policy.resolved_seconds, policy.unresolved_seconds
        for name, sweep, seconds in (
            ("resolved", letters.sweep_resolved, resolved),
            ("unresolved", letters.sweep_unresolved, unresolved),
            ("notices", outbox.sweep_confirmed, resolved),
        ):
            yield name, partial(sweep, database, older_than_seconds=seconds, may_go_on=may_go_on)
        yield (
            "verdicts",
            partial(
                stale_verdicts.sweep_verdicts,
                database,
                resolved_seconds=resolved,
                unresolved_seconds=unresolved,
                may_go_on=may_go_on,
            ),
        )
        yield "repeated_requests", partial(repeated_requests.sweep, database, may_go_on=may_go_on)
        for name, sweep_all, seconds in (
            ("worker_looks", worker_looks.sweep_looks, resolved),
            ("minutes", letter_groups.sweep_minutes, policy.history_seconds),
            ("happenings", happenings.sweep, policy.history_seconds),
            ("history", history.sweep, policy.history_seconds),
            ("diagnoses", diagnoses.sweep, policy.history_seconds),
            ("groups", letter_groups.sweep_groups, policy.longest_seconds),
            ("swept", swept.forget_swept, policy.longest_seconds),
            ("operations", operations.sweep, policy.longest_seconds),
        ):
            yield name, partial(sweep_all, database, older_than_seconds=seconds)
