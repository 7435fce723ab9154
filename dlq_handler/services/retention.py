"""Sweep records that have served their time: resolved letters, verdicts and notices after `dead_letter.ttl_ms`, what
the chart is drawn from after `history_days`, the others after `unresolved_days`.

Never sweeps a letter that somebody still has to look at before its longer time is over, nor an unconfirmed notice, nor
the record that keeps something from being announced twice.
"""

import asyncio
from dataclasses import dataclass

import structlog

from dlq_handler.services.every import every
from dlq_handler.store import (
    diagnoses,
    happenings,
    history,
    letter_groups,
    letters,
    operations,
    outbox,
    stale_verdicts,
    swept,
    worker_looks,
)
from dlq_handler.store.engine import Database

log = structlog.get_logger()


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

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._policy.interval_seconds, self.tick, stop, name="retention-sweeper")

    async def tick(self) -> None:
        resolved = await letters.sweep_resolved(
            self._database, older_than_seconds=self._policy.resolved_seconds
        )
        unresolved = await letters.sweep_unresolved(
            self._database, older_than_seconds=self._policy.unresolved_seconds
        )
        notices = await outbox.sweep_confirmed(
            self._database, older_than_seconds=self._policy.resolved_seconds
        )
        verdicts = await stale_verdicts.sweep_verdicts(
            self._database,
            resolved_seconds=self._policy.resolved_seconds,
            unresolved_seconds=self._policy.unresolved_seconds,
        )
        await worker_looks.sweep_looks(self._database, older_than_seconds=self._policy.resolved_seconds)
        await self._sweep_history()
        if resolved or unresolved or notices or verdicts:
            log.info(
                "records.swept",
                resolved=resolved,
                unresolved=unresolved,
                notices=notices,
                verdicts=verdicts,
            )

    async def _sweep_history(self) -> None:
        for sweep in (letter_groups.sweep_minutes, happenings.sweep, history.sweep, diagnoses.sweep):
            await sweep(self._database, older_than_seconds=self._policy.history_seconds)
        for sweep in (letter_groups.sweep_groups, swept.forget_swept, operations.sweep):
            await sweep(self._database, older_than_seconds=self._policy.longest_seconds)
