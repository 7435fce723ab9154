"""The host's side of a test: rows that stock Attune would have written, and what became of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import records_sql
from dlq_handler.dead_letters.decide import LetterProposal, decide_batch
from dlq_handler.dead_letters.groups_sql import count_letters
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.record import entries_of
from dlq_handler.endings import outbox_sql as outbox
from dlq_handler.endings.outbox_sql import OutboxEntry, OutboxLease
from dlq_handler.host import executions_sql
from dlq_handler.host.executions_sql import LockedView, end_executions
from dlq_handler.host.messages import Ending
from sandbox.attune.database import Database as AttuneDatabase
from sandbox.attune.database import Row, Session
from tests.support.builders import COMPLETIONS, a_dead_letter, circumstances

# Letters by group and minute, as they are on record; and the three ways in which they are counted.
COUNTS = """
SELECT (SELECT count(*) FROM dlq_handler.letter WHERE group_id IS NOT NULL) AS letters,
       (SELECT count(*) FROM dlq_handler.letter WHERE group_id IS NOT NULL AND outcome = 'failed') AS failed,
       (SELECT coalesce(sum(letters), 0) FROM dlq_handler.letter_group) AS group_letters,
       (SELECT coalesce(sum(failed), 0) FROM dlq_handler.letter_group) AS group_failed,
       (SELECT coalesce(sum(letters), 0) FROM dlq_handler.letter_minute) AS minute_letters,
       (SELECT coalesce(sum(failed), 0) FROM dlq_handler.letter_minute) AS minute_failed,
       (SELECT count(*) FROM (
            SELECT group_id, date_trunc('minute', received_at) AS minute, count(*),
                   count(*) FILTER (WHERE outcome = 'failed')
              FROM dlq_handler.letter WHERE group_id IS NOT NULL GROUP BY 1, 2
            EXCEPT SELECT group_id, minute, letters, failed FROM dlq_handler.letter_minute) AS miscounted) AS miscounted
"""


def assert_counted(row: tuple[int, ...], *, letters: int | None = None) -> None:
    """`row` is the answer to `COUNTS`. `letters`: how many there are to be."""
    recorded, failed, group_letters, group_failed, minute_letters, minute_failed, miscounted = map(int, row)
    assert (group_letters, group_failed) == (recorded, failed), "groups and letters on record differ"
    assert (minute_letters, minute_failed) == (recorded, failed), "minutes and letters on record differ"
    assert miscounted == 0, "some minute of some group is miscounted"
    assert letters is None or recorded == letters


class Host:
    def __init__(self, attune: AttuneDatabase) -> None:
        self._attune = attune

    @property
    def session(self) -> Session:
        return self._attune.session

    @asynccontextmanager
    async def locking_all(self) -> AsyncIterator[None]:
        """No statement can read or change an execution until the block ends."""
        async with self._attune.transaction() as session:
            await session.execute("LOCK TABLE execution IN ACCESS EXCLUSIVE MODE")
            yield

    @asynccontextmanager
    async def holding(self, execution_id: int) -> AsyncIterator[None]:
        """Another session holds a lock on this row for the duration of the block."""
        async with self._attune.transaction() as session:
            await session.execute("SELECT FROM execution WHERE id = $1 FOR UPDATE", execution_id)
            yield

    async def add_worker(self, *, heartbeat_age_seconds: float | None = 0.0, role: str = "action") -> int:
        return int(
            await self.session.fetchval(
                "INSERT INTO worker (name, worker_type, worker_role, last_heartbeat)"
                " VALUES (gen_random_uuid()::text, 'local', $2::worker_role,"
                " now() - make_interval(secs => $1)) RETURNING id",
                heartbeat_age_seconds,
                role,
            )
        )

    async def add_executions(self, count: int, *, status: str = "scheduled", **columns: Any) -> list[int]:
        """As Attune writes them: without a workflow task the column is JSON null."""
        names = "".join(f", {name}" for name in columns)
        values = "".join(f", ${place}" for place in range(3, 3 + len(columns)))
        if "workflow_task" not in columns:
            names, values = f"{names}, workflow_task", f"{values}, 'null'::jsonb"
        rows = await self.session.fetch(
            f"INSERT INTO execution (action_ref, status{names})"
            f" SELECT 'core.echo', $2::execution_status{values} FROM generate_series(1, $1) RETURNING id",
            count,
            status,
            *columns.values(),
        )
        return [row["id"] for row in rows]

    async def add_execution(self, *, status: str = "scheduled", **columns: Any) -> int:
        return (await self.add_executions(1, status=status, **columns))[0]

    async def execution(self, execution_id: int) -> Row:
        row = await self.session.fetchrow(
            "SELECT status::text AS status, result, updated, worker FROM execution WHERE id = $1",
            execution_id,
        )
        assert row is not None
        return row

    async def letter_for(self, execution_id: int, **changes: Any) -> DeadLetter:
        """The letter of the current attempt."""
        updated: datetime = (await self.execution(execution_id))["updated"]
        fields = {"key": f"letter-{execution_id}", "execution_id": execution_id, "worker_id": None}
        return a_dead_letter(**(fields | {"attempt_updated_at": updated} | changes))

    async def letters(self) -> list[Row]:
        return await self.session.fetch("SELECT * FROM dlq_handler.letter ORDER BY id")

    async def outbox(self) -> list[Row]:
        return await self.session.fetch("SELECT * FROM dlq_handler.outbox ORDER BY id")


def decided(letters: list[DeadLetter], view: LockedView) -> list[LetterProposal]:
    return decide_batch(
        letters,
        executions=view.executions,
        workers={},
        circumstances=circumstances(),
        destination=COMPLETIONS,
        now=view.now,
    )


def endings_of(proposals: list[LetterProposal]) -> list[Ending]:
    return [one.change for one in proposals if one.change is not None]


async def commit_batch(
    store: Database, letters: list[DeadLetter], *, holder: str | None = None, lease_seconds: float = 30
) -> list[OutboxEntry]:
    """A whole batch transaction, as the service does it."""
    async with store.transaction() as tx:
        view = await executions_sql.lock_executions(
            tx, (letter.execution_id for letter in letters if letter.execution_id is not None)
        )
        rulings = decided(
            [letter for letter in letters if letter.execution_id not in view.locked_elsewhere], view
        )
        changed = await end_executions(tx, endings_of(rulings))
        recorded = await records_sql.record_letters(
            tx, entries_of(rulings, ended=changed, now=view.now), replica="here"
        )
        await count_letters(tx, recorded)
        return await outbox.add_to_outbox(
            tx,
            [ending.message for ending in endings_of(rulings) if ending.execution.id in changed],
            lease=OutboxLease(holder=holder, seconds=lease_seconds, taken_at=monotonic_seconds())
            if holder
            else None,
        )
