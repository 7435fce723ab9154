"""The rows of workers while their queues are retired, on a real database."""

import asyncio

import pytest
from asyncpg.exceptions import LockNotAvailableError

from dlq_handler.database.engine import Database
from dlq_handler.errors import Contended
from dlq_handler.host import worker_lifecycle_sql
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.worker import WorkerStatus
from dlq_handler.host.worker_lifecycle_sql import (
    RETIRING,
    cordon,
    lock_worker,
    uncordon,
    workers_with_open_executions,
)
from dlq_handler.lifecycle.execution_state import HostExecutionStates
from tests.support.host_tables import Host

GONE = 999_999


async def cordon_of(host: Host, worker_id: int) -> tuple[bool, str | None, bool]:
    row = await host.session.fetchrow(
        "SELECT cordoned, cordon_reason, cordoned_at IS NOT NULL AS dated FROM worker WHERE id = $1",
        worker_id,
    )
    assert row is not None
    return row["cordoned"], row["cordon_reason"], row["dated"]


async def test_worker_is_cordoned_once_and_uncordoned_again(store: Database, host: Host) -> None:
    worker = await host.add_worker()

    async with store.transaction() as tx:
        assert await cordon(tx, worker)
        assert not await cordon(tx, worker)
    assert await cordon_of(host, worker) == (True, RETIRING, True)

    async with store.transaction() as tx:
        assert await uncordon(tx, worker)
        assert not await uncordon(tx, worker)
    assert await cordon_of(host, worker) == (False, None, False)


async def test_cordon_of_an_operator_is_neither_replaced_nor_taken_back(store: Database, host: Host) -> None:
    worker = await host.add_worker()
    await host.session.execute(
        "UPDATE worker SET cordoned = true, cordon_reason = 'disk full' WHERE id = $1", worker
    )

    async with store.transaction() as tx:
        assert not await cordon(tx, worker)
        assert not await uncordon(tx, worker)

    assert (await cordon_of(host, worker))[:2] == (True, "disk full")


async def test_operator_who_cordons_a_retiring_worker_keeps_the_cordon(store: Database, host: Host) -> None:
    worker = await host.add_worker()
    async with store.transaction() as tx:
        await cordon(tx, worker)
    await host.session.execute("UPDATE worker SET cordon_reason = 'disk full' WHERE id = $1", worker)

    async with store.transaction() as tx:
        assert not await uncordon(tx, worker)


async def test_cordon_changes_neither_status_nor_heartbeat(store: Database, host: Host) -> None:
    worker = await host.add_worker(heartbeat_age_seconds=600)
    before = await host.session.fetchrow(
        "SELECT status::text, last_heartbeat FROM worker WHERE id = $1", worker
    )

    async with store.transaction() as tx:
        await cordon(tx, worker)

    after = await host.session.fetchrow(
        "SELECT status::text, last_heartbeat FROM worker WHERE id = $1", worker
    )
    assert after == before


async def test_worker_without_a_row_is_neither_locked_nor_cordoned(store: Database, host: Host) -> None:
    async with store.transaction() as tx:
        assert await lock_worker(tx, GONE) is None
        assert not await cordon(tx, GONE)
        assert not await uncordon(tx, GONE)


async def test_host_without_cordons_is_left_as_it_is(store: Database, host: Host) -> None:
    worker = await host.add_worker()
    await host.session.execute("ALTER TABLE worker DROP COLUMN cordoned CASCADE, DROP COLUMN cordon_reason")

    async with store.transaction() as tx:
        assert await lock_worker(tx, worker) is not None
        assert not await cordon(tx, worker)
        assert not await uncordon(tx, worker)


async def test_registration_waits_for_the_lock_and_the_scheduler_does_not(
    store: Database, host: Host
) -> None:
    worker = await host.add_worker(heartbeat_age_seconds=600)

    async with store.transaction() as tx:
        found = await lock_worker(tx, worker)
        assert found is not None
        assert found.status == WorkerStatus.ACTIVE
        assert (found.heartbeat_age_seconds or 0) >= 600
        # The foreign key of an execution takes a key share lock on the worker's row.
        await host.add_execution(worker=worker)
        async with host._attune.transaction() as session:
            await session.execute("SET LOCAL lock_timeout = '50ms'")
            with pytest.raises(LockNotAvailableError):
                await session.execute("UPDATE worker SET last_heartbeat = now() WHERE id = $1", worker)

    await host.session.execute("UPDATE worker SET last_heartbeat = now() WHERE id = $1", worker)


async def test_row_that_another_holds_is_given_up_in_time(
    store: Database, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert worker_lifecycle_sql.LOCK_TIMEOUT_MS <= 5000
    monkeypatch.setattr(worker_lifecycle_sql, "LOCK_TIMEOUT_MS", 50)
    worker = await host.add_worker()

    async with host._attune.transaction() as session:
        await session.execute("SELECT FROM worker WHERE id = $1 FOR UPDATE", worker)
        with pytest.raises(Contended):
            async with asyncio.timeout(5), store.transaction() as tx:
                await lock_worker(tx, worker)


@pytest.mark.parametrize("status", list(ExecutionStatus))
async def test_execution_counts_as_open_until_it_is_final(
    store: Database, host: Host, status: ExecutionStatus
) -> None:
    worker, other = await host.add_worker(), await host.add_worker()
    execution = await host.add_execution(status=status.value, worker=worker)
    await host.add_execution(worker=other)
    is_open = not status.is_terminal

    async with store.transaction() as tx:
        assert await workers_with_open_executions(tx, [worker, GONE]) == ({worker} if is_open else set())

    states = HostExecutionStates(store)
    assert await states.is_finalized(execution) is not is_open
    # Final or not: its row was changed within the grace time.
    assert await states.is_active(execution)


async def test_execution_in_a_status_of_a_newer_host_is_open(store: Database, host: Host) -> None:
    worker = await host.add_worker()
    await host.session.execute("ALTER TYPE execution_status ADD VALUE 'suspended'")
    execution = await host.add_execution(status="suspended", worker=worker)

    async with store.transaction() as tx:
        assert await workers_with_open_executions(tx, [worker]) == {worker}
    assert not await HostExecutionStates(store).is_finalized(execution)
    assert await HostExecutionStates(store).is_active(execution)


async def test_final_execution_is_active_within_the_grace_time_only(store: Database, host: Host) -> None:
    execution = await host.add_execution(status="completed")

    assert await HostExecutionStates(store, grace_seconds=3600).is_active(execution)
    late = HostExecutionStates(store, grace_seconds=0)
    assert not await late.is_active(execution)
    assert await late.is_finalized(execution)


async def test_unknown_execution_is_neither_active_nor_finalized(store: Database, host: Host) -> None:
    states = HostExecutionStates(store, grace_seconds=3600)

    assert not await states.is_active(GONE)
    assert not await states.is_finalized(GONE)
