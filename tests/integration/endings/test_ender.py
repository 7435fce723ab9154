"""The order in which the ending transaction takes its locks."""

import re
from typing import Any

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from tests.support.builders import a_dead_letter
from tests.support.deciding import a_reprocessor, letter_ender
from tests.support.fail_safe import a_brake
from tests.support.host_tables import Host

WRITES = re.compile(r"FOR NO KEY UPDATE|INSERT INTO|UPDATE \w|pg_advisory_xact_lock")
TABLES = re.compile(
    r"pg_advisory_xact_lock|(?:FROM|INTO|UPDATE) (own\.outbox|own\.letter_group|own\.letter\b|own\.brake|execution\b)"
)


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first table of each statement that locks or writes, without repeats."""
    found: list[str] = []
    run = Transaction.run

    async def run_and_note(self: Transaction, sql: str, **parameters: object) -> Any:
        match = TABLES.search(sql) if WRITES.search(sql) else None
        if match is not None and found[-1:] != [name := match.group(1) or "room"]:
            found.append(name)
        return await run(self, sql, **parameters)

    monkeypatch.setattr(Transaction, "run", run_and_note)
    return found


async def test_locks_are_taken_in_the_written_order(store: Database, host: Host, locks: list[str]) -> None:
    letters = [await host.letter_for(one) for one in await host.add_executions(3)]
    ender = letter_ender(store, brake=a_brake(store, limit=2))
    locks.clear()

    await ender.commit(letters)

    assert locks == [
        "room",
        "execution",
        "own.letter",
        "execution",
        "own.letter",
        "own.outbox",
        "own.letter_group",
        "own.brake",
    ]


async def test_reprocessing_locks_the_execution_before_its_record(
    store: Database, host: Host, locks: list[str]
) -> None:
    execution_id = await host.add_execution()
    await letter_ender(store).commit([a_dead_letter(execution_id=execution_id + 1000, worker_id=7)])
    await host.session.execute(
        "UPDATE dlq_handler.letter SET execution_id = $1, attempt_updated_at ="
        " (SELECT updated FROM execution WHERE id = $1)",
        execution_id,
    )
    [record] = await host.letters()
    locks.clear()

    reprocessed = await a_reprocessor(store).reprocess(record["id"])

    assert reprocessed
    assert locks[:2] == ["execution", "own.letter"]
    assert (await host.execution(execution_id))["status"] == reprocessed.outcome == "failed"
