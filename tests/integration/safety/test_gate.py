"""The gate on a real database: nothing of a batch is written that our view is too sick to decide."""

from datetime import timedelta

import pytest

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.errors import GateClosed
from dlq_handler.host.database_state_sql import read_database_state
from dlq_handler.safety.gate import GateCause
from tests.support.builders import a_dead_letter
from tests.support.deciding import letter_ender
from tests.support.eventually import eventually
from tests.support.fail_safe import a_gate
from tests.support.host_tables import Host

FIRST = 10_000


def letters_without_execution(count: int) -> list[DeadLetter]:
    return [a_dead_letter(key=f"k{number}", execution_id=FIRST + number) for number in range(count)]


async def restore(host: Host, letters: list[DeadLetter]) -> None:
    """The executions are there again, as they were."""
    await host.session.execute(
        "INSERT INTO worker (id, name, worker_type, worker_role) VALUES (7, 'w', 'local', 'action')"
    )
    await host.session.execute(
        "INSERT INTO execution (id, action_ref, status, worker, updated)"
        " SELECT unnest($1::bigint[]), 'core.echo', 'scheduled', 7, $2",
        [letter.execution_id for letter in letters],
        letters[0].attempt_updated_at,
    )


async def test_letters_for_unknown_executions_are_not_written_until_these_exist(
    store: Database, host: Host
) -> None:
    gate = a_gate(store, unknown_percent=50)
    decide = letter_ender(store, gate=gate)
    letters = letters_without_execution(30)
    with pytest.raises(GateClosed, match="30 of the last 30"):
        await decide.commit(letters)
    assert await host.letters() == []
    await gate.tick()
    for attempt in (decide.check(), decide.commit(letters)):
        with pytest.raises(GateClosed):
            await attempt
    await restore(host, letters[:15])
    await gate.tick()
    await decide.check()
    await decide.commit(letters[:15])
    assert {row["outcome"] for row in await host.letters()} == {"failed"}


async def test_few_unknown_executions_among_many_are_recorded(store: Database, host: Host) -> None:
    decide = letter_ender(store, gate=a_gate(store, unknown_percent=50))
    known = [await host.letter_for(number) for number in await host.add_executions(31)]
    await decide.commit(letters_without_execution(30) + known)
    outcomes = [row["outcome"] for row in await host.letters()]
    assert (outcomes.count("unknown_execution"), outcomes.count("failed")) == (30, 31)


async def test_clock_that_jumped_saves_what_a_silent_worker_is_running(store: Database, host: Host) -> None:
    gate = a_gate(store, unavailable_after_seconds=2)
    decide = letter_ender(store, gate=gate, unavailable_after_seconds=2)
    worker = await host.add_worker(heartbeat_age_seconds=3600)
    first, second = await host.add_executions(2, status="running", worker=worker)

    async def knows_workers() -> bool:
        await gate.tick()
        return gate.knows_workers

    await eventually(knows_workers)
    await decide.commit([await host.letter_for(first)])
    assert (await host.execution(first))["status"] == "failed"
    # For another gate the clock has been an hour ahead until now: the very batch that reads it next must notice.
    async with store.transaction() as tx:
        ahead = (await read_database_state(tx, [])).now + timedelta(hours=1)
    gate = a_gate(store, unavailable_after_seconds=2)
    gate.see_clock(ahead, asked_at=monotonic_seconds(), answered_at=monotonic_seconds())
    assert gate.knows_workers
    await letter_ender(store, gate=gate, unavailable_after_seconds=2).commit([await host.letter_for(second)])
    assert (await host.execution(second))["status"] == "running"
    assert (await host.letters())[-1]["outcome"] == "left_to_monitor"


async def set_version(host: Host, version: str, least_program_version: str) -> None:
    await host.session.execute("UPDATE dlq_handler.alembic_version SET version_num = $1", version)
    await host.session.execute(
        "UPDATE dlq_handler.compatibility SET least_program_version = $1", least_program_version
    )


async def test_a_replica_decides_nothing_on_tables_it_cannot_use(store: Database, host: Host) -> None:
    """On tables that need a newer program, and on tables of before an upgrade; on newer usable ones it decides."""
    gate = a_gate(store)
    decide = letter_ender(store, gate=gate)
    await gate.tick()
    await decide.check()
    [number] = await host.add_executions(1)
    letters = [await host.letter_for(number)]
    for version, least in (("9999", "99.0.0"), ("0000", "0.0.1")):
        await set_version(host, version, least)
        await gate.tick()
        assert (gate.fits_schema, gate.is_closed(GateCause.SCHEMA)) == (False, True)
        for attempt in (decide.check(), decide.commit(letters)):
            with pytest.raises(GateClosed, match=f"have version {version}"):
                await attempt
    assert await host.letters() == []
    await set_version(host, "9999", "0.0.1")
    await gate.tick()
    await decide.commit(letters)
    assert {row["outcome"] for row in await host.letters()} == {"failed"}
