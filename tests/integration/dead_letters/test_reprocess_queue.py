"""Kept letters of a group: seen and put up in parts of one size, however many there are."""

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import reprocess_sql
from dlq_handler.dead_letters.listing import CappedCount, group_version
from dlq_handler.dead_letters.reprocess_sql import MOST_QUEUED
from tests.support.deciding import KEPT_GROUP, a_kept_group
from tests.support.host_tables import Host
from tests.support.plans import Plans


async def version(store: Database) -> str:
    async with store.transaction() as tx:
        return group_version((await reprocess_sql.read_group_state(tx, KEPT_GROUP)).digest)


async def put_up_one_act(store: Database) -> list[int]:
    async with store.transaction() as tx:
        return await reprocess_sql.queue_reprocessing(tx, await reprocess_sql.lock_group(tx, KEPT_GROUP))


@pytest.mark.parametrize(
    "meanwhile",
    [
        "UPDATE dlq_handler.letter SET next_attempt_at = now() WHERE key = 'kept-2'",
        "UPDATE dlq_handler.letter SET decided_at = now() WHERE key = 'kept-2'",
        "UPDATE dlq_handler.letter SET outcome = 'failed' WHERE key = 'kept-2'",
        "UPDATE dlq_handler.letter SET outcome = 'update_failed', attempts = 1 WHERE key = 'kept-2'",
        "DELETE FROM dlq_handler.letter WHERE key = 'kept-2'",
        """
        INSERT INTO dlq_handler.letter (key, reason, exchange, routing_key, body, body_size, outcome, explanation,
                                        received_at, decided_at, replica, group_id)
        SELECT 'new', reason, '', '', '', 0, outcome, '', now(), now(), '', group_id
          FROM dlq_handler.letter WHERE key = 'kept-2'
        """,
    ],
)
async def test_a_group_that_changed_has_another_version(store: Database, host: Host, meanwhile: str) -> None:
    await a_kept_group(store, 3)
    before = await version(store)
    assert await version(store) == before
    await host.session.execute("UPDATE dlq_handler.letter SET repeats = 9")
    assert await version(store) == before, "no act depends on it"
    await host.session.execute(meanwhile)
    assert await version(store) != before


async def test_in_any_time_zone_the_version_is_the_same(store: Database) -> None:
    await a_kept_group(store, 3)
    versions = set()
    for zone in ("UTC", "Asia/Kathmandu"):
        async with store.transaction() as tx:
            await tx.run(f"SET LOCAL TimeZone = '{zone}'")
            versions.add((await reprocess_sql.read_group_state(tx, KEPT_GROUP)).digest)
    assert len(versions) == 1


async def test_what_an_act_holds_has_the_digest_of_the_look_before_it(store: Database) -> None:
    await a_kept_group(store, 3)
    async with store.transaction() as tx:
        seen = await reprocess_sql.read_group_state(tx, KEPT_GROUP)
        held = await reprocess_sql.lock_group(tx, KEPT_GROUP)
        assert await reprocess_sql.digest_of(tx, held) == seen.digest
        assert await reprocess_sql.digest_of(tx, held[1:]) != seen.digest
        nothing = await reprocess_sql.read_group_state(tx, "9876543210")
        assert await reprocess_sql.digest_of(tx, []) == nothing.digest
    assert (seen.letters.count, nothing.letters.count) == (3, 0)


async def test_acts_in_a_row_come_to_all_letters_and_then_to_those_decided_longest_ago(
    store: Database, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reprocess_sql, "MOST_QUEUED", 4)
    await a_kept_group(store, 10)
    ids = [row["id"] for row in await host.letters()]
    async with store.transaction() as tx:
        assert (await reprocess_sql.read_group_state(tx, KEPT_GROUP)).letters == CappedCount(
            count=4, is_capped=True
        )
        assert await reprocess_sql.left_in_group(tx, KEPT_GROUP) == CappedCount(count=4, is_capped=True)

    assert await put_up_one_act(store) == ids[:4]
    # A sidecar decides them while the operator goes on, and they stay what they are.
    await host.session.execute(
        "UPDATE dlq_handler.letter SET next_attempt_at = NULL, decided_at = now() WHERE next_attempt_at IS NOT NULL"
    )
    assert await put_up_one_act(store) == ids[4:8]
    assert await put_up_one_act(store) == sorted([*ids[8:], *ids[:2]])
    async with store.transaction() as tx:
        assert await reprocess_sql.left_in_group(tx, KEPT_GROUP) == CappedCount(count=2, is_capped=False)


async def test_one_more_far_behind_does_not_stop_an_act_that_does_not_reach_it(
    store: Database, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While letters arrive, a version of all of them would be old before an operator could send it back."""
    monkeypatch.setattr(reprocess_sql, "MOST_QUEUED", 4)
    await a_kept_group(store, 10)
    before = await version(store)
    await host.session.execute("UPDATE dlq_handler.letter SET next_attempt_at = now() WHERE key = 'kept-9'")
    assert await version(store) == before
    await host.session.execute("UPDATE dlq_handler.letter SET next_attempt_at = now() WHERE key = 'kept-4'")
    assert await version(store) != before


async def test_letters_named_by_their_outcome_are_no_more_than_one_act_puts_up(store: Database) -> None:
    await a_kept_group(store, MOST_QUEUED + 1)
    assert len(await reprocess_sql.reprocessable(store)) == MOST_QUEUED


async def test_of_a_very_large_group_no_more_is_read_than_one_act_reaches(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_kept_group(store, 3 * MOST_QUEUED)
    plans = Plans()
    plans.note(monkeypatch)
    async with store.transaction() as tx:
        await reprocess_sql.read_group_state(tx, KEPT_GROUP)
        await reprocess_sql.lock_group(tx, KEPT_GROUP)
        await reprocess_sql.left_in_group(tx, KEPT_GROUP)
    await reprocess_sql.due_for_reprocess(store)

    # The reached ones, and one more; to lock them is to read them a second time.
    at_most = [2 * MOST_QUEUED + 1, 2 * MOST_QUEUED, MOST_QUEUED + 1, 0]
    read = plans.rows_read("letter")
    assert all(found <= most for found, most in zip(read, at_most, strict=True)), f"{read}: {plans}"
