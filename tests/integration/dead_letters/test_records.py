"""Letters on record: shown, taken up again, deleted by retention."""

import asyncio
from datetime import timedelta

import pytest

from dlq_handler.database import expiry_sql
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import records_sql, reprocess_sql, search_sql
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.listing import LetterFilter
from dlq_handler.dead_letters.record import Entry, update_failed
from dlq_handler.endings.recording import Refusal
from dlq_handler.host.workers_sql import worker_ids
from tests.support.builders import a_dead_letter, a_death
from tests.support.host_tables import Host

REFUSED = Refusal(error="refused", is_own_error=False, frames=None)


async def record(store: Database, *entries: Entry) -> None:
    async with store.transaction() as tx:
        await records_sql.record_letters(tx, entries, replica="here")


def an_entry(key: str, outcome: Outcome = Outcome.FAILED, *, reason: str = "expired") -> Entry:
    return Entry(
        letter=a_dead_letter(key=key, death=a_death(reason=reason)), outcome=outcome, explanation="because"
    )


async def age(host: Host, key: str, interval: str) -> None:
    await host.session.execute(
        f"UPDATE dlq_handler.letter SET received_at = now() - interval '{interval}',"
        f" decided_at = now() - interval '{interval}' WHERE key = $1",
        key,
    )


async def listed(store: Database) -> list[str]:
    return [one.key for one in (await search_sql.search(store, LetterFilter())).records]


async def test_list_is_without_bodies_and_show_has_all(store: Database) -> None:
    await record(store, an_entry("a"))
    [brief] = (await search_sql.search(store, LetterFilter())).records
    full = await records_sql.show(store, brief.id)
    assert full is not None
    assert (brief.body, full.body, full.body_size) == (None, b"{}", 2)
    assert (full.outcome, full.explanation, full.queue, full.replica) == (
        Outcome.FAILED,
        "because",
        "worker.7.executions",
        "here",
    )
    assert await records_sql.show(store, brief.id + 1) is None


@pytest.mark.parametrize(
    "letter",
    [
        a_dead_letter(),
        a_dead_letter(
            death=None, first_death_queue=None, attempt_updated_at=None, worker_id=None, correlation_id=None
        ),
        a_dead_letter(death=a_death(queue=None, reason="none", time=None, count=0)),
        a_dead_letter(
            parse_error="odd", message_type=None, execution_id=None, body=bytes(range(256)), body_size=2**33
        ),
    ],
)
async def test_claimed_letter_is_the_letter_that_was_recorded(store: Database, letter: DeadLetter) -> None:
    await record(store, Entry(letter=letter, outcome=Outcome.UNRELATED, explanation="because"))
    [record_id] = await reprocess_sql.reprocessable(store)

    async with store.transaction() as tx:
        claimed = await reprocess_sql.claim(tx, record_id)

    assert claimed is not None
    assert claimed.letter == letter
    assert (claimed.outcome, claimed.attempts) == (Outcome.UNRELATED, 0)


async def test_only_what_is_reprocessable_is_taken_up(store: Database, host: Host) -> None:
    await record(store, *(an_entry(outcome.value, outcome) for outcome in Outcome))
    by_key = {row["key"]: row["id"] for row in await host.letters()}

    assert set(await reprocess_sql.reprocessable(store)) == {
        by_key["unknown_execution"],
        by_key["unrelated"],
        by_key["update_failed"],
        by_key["deferred"],
    }
    assert await reprocess_sql.reprocessable(store, {Outcome.UNRELATED, Outcome.FAILED}) == [
        by_key["unrelated"]
    ]
    async with store.transaction() as tx:
        assert await reprocess_sql.claim(tx, by_key["failed"]) is None


async def test_refused_letter_is_due_when_its_pause_is_over(store: Database, host: Host) -> None:
    now = await host.session.fetchval("SELECT now()")
    await record(
        store,
        update_failed(a_dead_letter(key="later"), REFUSED, attempts=1, now=now),
        update_failed(a_dead_letter(key="due"), REFUSED, attempts=1, now=now - timedelta(minutes=2)),
        an_entry("other", Outcome.UNRELATED),
    )
    by_key = {row["key"]: row["id"] for row in await host.letters()}

    assert [one.record_id for one in await reprocess_sql.due_for_reprocess(store)] == [by_key["due"]]


async def test_record_that_is_being_decided_again_is_passed_over_by_others(store: Database) -> None:
    await record(store, an_entry("a", Outcome.UNRELATED))
    [record_id] = await reprocess_sql.reprocessable(store)
    async with store.transaction() as tx, store.transaction() as other:
        assert await reprocess_sql.claim(tx, record_id) is not None
        async with asyncio.timeout(5):
            assert await reprocess_sql.claim(other, record_id) is None


async def test_new_decision_replaces_the_old_one(store: Database, host: Host) -> None:
    now = await host.session.fetchval("SELECT now()")
    await record(store, update_failed(a_dead_letter(), REFUSED, attempts=3, now=now))
    [before] = await host.letters()

    async with store.transaction() as tx:
        claimed = await reprocess_sql.claim(tx, before["id"])
        assert claimed is not None
        entry = Entry(letter=claimed.letter, outcome=Outcome.FAILED, explanation="now it can")
        await reprocess_sql.replace_outcome(tx, claimed.record_id, entry)

    [after] = await host.letters()
    assert (after["outcome"], after["explanation"], after["error"]) == ("failed", "now it can", None)
    assert (after["attempts"], after["next_attempt_at"], after["received_at"]) == (
        0,
        None,
        before["received_at"],
    )
    assert after["decided_at"] > before["decided_at"]
    assert claimed.attempts == 3


async def test_resolved_letters_are_deleted_by_age_and_unresolved_ones_stay(
    store: Database, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry_sql, "BATCH_SIZE", 2)
    old = [an_entry(outcome.value, outcome) for outcome in Outcome]
    await record(store, *old, an_entry("young"))
    for entry in old:
        await age(host, entry.letter.key, "2 days")

    assert await records_sql.delete_resolved(store, older_than_seconds=86_400) == 6
    assert set(await listed(store)) == {
        "unknown_execution",
        "unrelated",
        "unreadable",
        "update_failed",
        "deferred",
        "young",
    }
    assert await records_sql.delete_unresolved(store, older_than_seconds=3 * 86_400) == 0
    assert await records_sql.delete_unresolved(store, older_than_seconds=86_400) == 5
    assert await listed(store) == ["young"]


async def test_workers_that_take_dispatches_are_listed_whatever_their_state(
    store: Database, host: Host
) -> None:
    alive = await host.add_worker()
    dead = await host.add_worker(heartbeat_age_seconds=None)
    await host.add_worker(role="sensor")
    assert await worker_ids(store) == {alive, dead}


async def test_workers_of_a_host_without_roles_all_count(store: Database, host: Host) -> None:
    worker = await host.add_worker(role="sensor")
    await host.session.execute("ALTER TABLE worker DROP COLUMN worker_role CASCADE")
    assert await worker_ids(store) == {worker}
