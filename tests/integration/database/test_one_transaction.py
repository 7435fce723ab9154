"""Many short reads in one transaction: one that fails fails alone."""

import asyncio

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.errors import RowRejected, Unavailable


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
        with pytest.raises(RowRejected):
            async with store.transaction() as tx:
                await tx.rows("SELECT 1 / 0")
        with pytest.raises(Unavailable):
            async with store.transaction() as tx:
                await tx.rows("SELECT * FROM no_such_table")
        assert await transaction_id(store) == first


async def test_after_one_that_was_cut_short_the_others_have_their_own(store: Database) -> None:
    async with store.one_transaction():
        first = await transaction_id(store)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), store.transaction() as tx:
                await tx.rows("SELECT pg_sleep(5)")
        second, third = await transaction_id(store), await transaction_id(store)
    assert len({first, second, third}) == 3


async def test_other_time_limits_need_their_own_transaction(store: Database) -> None:
    async with store.one_transaction():
        first = await transaction_id(store)
        async with store.transaction(statement_timeout_ms=1234) as tx:
            [row] = await tx.rows(
                "SELECT txid_current() AS id, current_setting('statement_timeout') AS limit"
            )
    assert (row.id != first, row.limit) == (True, "1234ms")
