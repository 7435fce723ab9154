"""Many short reads in one transaction: one that fails fails alone."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.errors import RowRefused, Unavailable


async def transaction_id(store: Database) -> int:
    async with store.transaction() as tx:
        [row] = await tx.rows("SELECT txid_current() AS id")
    return int(row.id)


async def test_transactions_of_the_block_are_one(store: Database) -> None:
    async with store.one_transaction():
        inside = [await transaction_id(store) for _ in range(3)]
    assert len(set(inside)) == 1
    assert await transaction_id(store) not in inside


async def test_one_that_fails_fails_alone(store: Database) -> None:
    async with store.one_transaction():
        first = await transaction_id(store)
        with pytest.raises(RowRefused):
            async with store.transaction() as tx:
                await tx.rows("SELECT 1 / 0")
        with pytest.raises(Unavailable):
            async with store.transaction() as tx:
                await tx.rows("SELECT * FROM no_such_table")
        assert await transaction_id(store) == first


async def cut_short(store: Database) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1), store.transaction() as tx:
            await tx.rows("SELECT pg_sleep(5)")


async def lose_connection(store: Database) -> None:
    with pytest.raises(Unavailable):
        async with store.transaction() as tx:
            await tx.rows("SELECT pg_terminate_backend(pg_backend_pid())")


@pytest.mark.parametrize("broken", [cut_short, lose_connection])
async def test_after_a_broken_one_the_others_have_their_own(
    store: Database, broken: Callable[[Database], Awaitable[None]]
) -> None:
    ids = list[int]()

    async def block() -> None:
        async with store.one_transaction():
            ids.append(await transaction_id(store))
            await broken(store)
            ids.extend([await transaction_id(store), await transaction_id(store)])

    with pytest.raises(Unavailable, match="cut short"):
        await block()
    assert len(set(ids)) == 3


async def test_task_that_outlives_the_block_has_its_own(store: Database) -> None:
    ended = asyncio.Event()

    async def later() -> int:
        await ended.wait()
        return await transaction_id(store)

    async with store.one_transaction():
        first = await transaction_id(store)
        task = asyncio.create_task(later())
        await asyncio.sleep(0)
    ended.set()
    assert await task != first


async def test_other_time_limits_need_their_own_transaction(store: Database) -> None:
    async with store.one_transaction():
        first = await transaction_id(store)
        async with store.transaction(statement_timeout_ms=1234) as tx:
            [row] = await tx.rows(
                "SELECT txid_current() AS id, current_setting('statement_timeout') AS limit"
            )
    assert (row.id != first, row.limit) == (True, "1234ms")
