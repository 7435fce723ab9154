"""Letters are found by what people know of them, in pages that cost the same however many there are."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import groups_sql, records_sql, search_sql
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.group import Category
from dlq_handler.dead_letters.listing import CameBefore, CappedCount, LetterFilter
from dlq_handler.dead_letters.record import Entry
from tests.integration.timeouts.test_stale import Explaining, nodes
from tests.support.builders import a_dead_letter, a_death
from tests.support.host_tables import Host
from tests.support.plans import Plans


async def record(store: Database, *entries: Entry) -> None:
    async with store.transaction() as tx:
        recorded = await records_sql.record_letters(tx, entries, replica="here")
        await groups_sql.count_letters(tx, recorded)


def an_entry(
    key: str, outcome: Outcome = Outcome.FAILED, *, reason: str = "expired", **changes: Any
) -> Entry:
    letter = a_dead_letter(key=key, death=a_death(reason=reason), **changes)
    return Entry(letter=letter, outcome=outcome, explanation="because")


async def found(store: Database, **wanted: Any) -> list[str]:
    page = await search_sql.search(store, LetterFilter(**wanted))
    counted = await search_sql.count(store, LetterFilter(**wanted))
    assert counted == CappedCount(count=len(page.records), is_capped=False)
    return [one.key for one in page.records]


async def id_of(store: Database, key: str) -> int:
    [one] = [one for one in (await search_sql.search(store, LetterFilter())).records if one.key == key]
    return one.id


async def test_each_filter_finds_its_letters_and_together_they_narrow(store: Database) -> None:
    await record(
        store, an_entry("a", worker_id=1, action_ref="core.a", message_id="m-a", correlation_id="c-a")
    )
    await record(store, an_entry("b", Outcome.UNRELATED, worker_id=2, reason="maxlen", message_type="Other"))
    await record(store, an_entry("c", Outcome.UNREADABLE, worker_id=1, parse_error="no", action_ref=None))
    await record(store, an_entry("d", Outcome.STALE_ATTEMPT, worker_id=1, reason="maxlen", execution_id=4711))

    assert await found(store) == ["d", "c", "b", "a"]
    assert await found(store, outcome=Outcome.FAILED) == ["a"]
    assert await found(store, outcome=Outcome.STALE_ATTEMPT) == ["d"]
    assert await found(store, reason="expired") == ["c", "a"]
    assert await found(store, reason="maxlen") == ["d", "b"]
    assert await found(store, category=Category.QUEUE_FULL) == ["d"]
    assert await found(store, category=Category.UNRELATED) == ["b"]
    assert await found(store, category=Category.RESCUED) == []
    assert await found(store, worker_id=1) == ["d", "c", "a"]
    assert await found(store, worker_id=1, reason="expired", category=Category.NOT_TAKEN) == ["a"]
    assert await found(store, action="core.a") == ["a"]
    group = (await search_sql.search(store, LetterFilter(action="core.a"))).records[0].group_id
    assert await found(store, group=group) == ["a"]


async def test_an_id_is_looked_for_wherever_it_may_stand(store: Database) -> None:
    await record(store, an_entry("a", execution_id=4711, message_id="m-a", correlation_id="c-a"))
    await record(store, an_entry("b", execution_id=12, message_id="4711", correlation_id=None))
    number = await id_of(store, "a")
    assert await found(store, search="4711") == ["b", "a"]
    assert await found(store, search=" m-a ") == ["a"]
    assert await found(store, search="c-a") == ["a"]
    assert await found(store, search=str(number)) == ["a"]
    assert await found(store, search="9" * 19) == []
    assert await found(store, search="\x00 ' OR true --") == []


async def test_windows_of_time_find_their_letters_also_beside_others(store: Database, host: Host) -> None:
    """Written in one order and dated in one order, as the decide does it; some hours apart."""
    for hours, key in enumerate(("now", "one", "two", "three")):
        await record(store, an_entry(key))
        assert hours == len(await host.letters()) - 1
    now: datetime = await host.session.fetchval("SELECT date_trunc('hour', now()) - interval '1 hour'")
    await host.session.execute("DELETE FROM dlq_handler.letter_minute")
    for place, row in enumerate(await host.letters()):
        at = now + timedelta(hours=place)
        await host.session.execute(
            "UPDATE dlq_handler.letter SET received_at = $2 WHERE id = $1", row["id"], at
        )
        await host.session.execute(
            "INSERT INTO dlq_handler.letter_minute (minute, group_id, letters, failed, last_at, last_id)"
            " VALUES ($1, 'g', 1, 1, $1, $2)",
            at,
            row["id"],
        )
    hour = timedelta(hours=1)
    assert await found(store, since=now + hour, until=now + 2 * hour) == ["one"]
    assert await found(store, since=now + 2 * hour) == ["three", "two"]
    assert await found(store, until=now + hour) == ["now"]
    assert await found(store, since=now, until=now + 9 * hour, category=Category.NOT_TAKEN) == [
        "three",
        "two",
        "one",
        "now",
    ]


async def test_pages_lead_to_each_other_in_both_directions(store: Database) -> None:
    await record(store, *(an_entry(f"{n:02}") for n in range(7)))
    first = await search_sql.search(store, LetterFilter(), limit=3)
    second = await search_sql.search(store, LetterFilter(), before_id=first.older, limit=3)
    last = await search_sql.search(store, LetterFilter(), before_id=second.older, limit=3)
    assert [[one.key for one in page.records] for page in (first, second, last)] == [
        ["06", "05", "04"],
        ["03", "02", "01"],
        ["00"],
    ]
    assert (first.newer, last.older) == (None, None)
    back = await search_sql.search(store, LetterFilter(), after_id=last.newer, limit=3)
    assert back.records == second.records
    top = await search_sql.search(store, LetterFilter(), after_id=back.newer, limit=3)
    assert (top.records, top.newer) == (first.records, None)
    beyond = await search_sql.search(store, LetterFilter(), after_id=first.records[0].id, limit=3)
    assert (beyond.records, beyond.newer) == ([], None)
    again = await search_sql.search(store, LetterFilter(), before_id=beyond.older, limit=3)
    assert again.records == first.records


async def test_counts_stop_at_their_cap(store: Database) -> None:
    await record(store, *(an_entry(f"{n:02}") for n in range(7)))
    first = (await search_sql.search(store, LetterFilter())).records[-1].id
    assert await search_sql.count(store, LetterFilter(), cap=5) == CappedCount(count=5, is_capped=True)
    assert await search_sql.count(store, LetterFilter(), cap=7) == CappedCount(count=7, is_capped=False)
    assert await search_sql.newer_than(store, LetterFilter(), first) == CappedCount(count=6, is_capped=False)
    assert await search_sql.newer_than(
        store, LetterFilter(category=Category.NOT_TAKEN), first, cap=2
    ) == CappedCount(count=2, is_capped=True)


async def test_a_letter_knows_its_neighbours_and_when_the_last_one_came(store: Database) -> None:
    assert await search_sql.came_before(store) == CameBefore(has_any=False, last_at=None)
    await record(store, an_entry("a"), an_entry("b"), an_entry("c"))
    a, b, c = [await id_of(store, key) for key in "abc"]
    assert await search_sql.neighbours(store, b) == (a, c)
    assert await search_sql.neighbours(store, c) == (b, None)
    last = await records_sql.show(store, c)
    assert last is not None
    came = CameBefore(has_any=True, last_at=last.received_at)
    assert await search_sql.came_before(store) == came


async def test_that_letters_came_outlives_their_retention(store: Database) -> None:
    await record(store, an_entry("a"))
    await records_sql.delete_resolved(store, older_than_seconds=-1)
    came = await search_sql.came_before(store)
    assert came.last_at is not None
    await groups_sql.delete_groups(store, older_than_seconds=-1)
    assert await search_sql.came_before(store) == CameBefore(has_any=True, last_at=None)


RARE = (
    LetterFilter(group="rare"),
    LetterFilter(category=Category.REJECTED),
    LetterFilter(reason="rejected"),
    LetterFilter(outcome=Outcome.UNREADABLE),
    LetterFilter(worker_id=99),
    LetterFilter(action="rare.action"),
    LetterFilter(search="m-77"),
    LetterFilter(search="77"),
)


RARE_IN_FLOOD = 4


async def a_flood(host: Host) -> None:
    await host.session.execute(
        """
        INSERT INTO dlq_handler.letter (
            key, execution_id, reason, exchange, routing_key, body, body_size, outcome, explanation, received_at,
            decided_at, replica, message_id, correlation_id, group_id, worker_id, action_ref)
        SELECT n, n, CASE WHEN n % 5000 = 0 THEN 'rejected' ELSE 'expired' END, '', '', '', 0,
               CASE WHEN n % 5000 = 0 THEN 'unreadable' ELSE 'failed' END, '', now(), now(), '', 'm-' || n, 'c-' || n,
               CASE WHEN n % 5000 = 0 THEN 'rare' ELSE 'usual' END, CASE WHEN n % 5000 = 0 THEN 99 ELSE 1 END,
               CASE WHEN n % 5000 = 0 THEN 'rare.action' ELSE 'usual.action' END
          FROM generate_series(1, 20000) AS n;
        INSERT INTO dlq_handler.letter_group
        SELECT id, category, 'expired', NULL, NULL, NULL, now(), now(), 1, 1, '{}'
          FROM (VALUES ('usual', 'not_taken'), ('rare', 'rejected')) AS given(id, category);
        ANALYZE dlq_handler.letter; ANALYZE dlq_handler.letter_group
        """
    )


async def test_in_a_flood_the_rare_ones_are_found_by_their_index(store: Database, host: Host) -> None:
    await a_flood(host)
    async with store.transaction() as tx:
        explaining = Explaining(tx)
        for wanted in RARE:
            asked = search_sql._Asked(wanted)  # the condition itself is what is looked at
            await explaining.rows(
                f"SELECT id FROM own.letter WHERE {asked.found('DESC')} ORDER BY id DESC LIMIT :most",
                **asked.parameters,
                most=51,
            )
    assert len(explaining.plans) == len(RARE)
    for wanted, plan in zip(RARE, explaining.plans, strict=True):
        read = [node for node in nodes(plan) if node.get("Relation Name") == "letter"]
        assert not any(node["Node Type"] == "Seq Scan" for node in read), json.dumps(plan, indent=1)
        # Along the ids alone it would come past all the others.
        past_others = [node for node in read if node.get("Index Name") == "letter_pkey" and "Filter" in node]
        assert not past_others, f"{wanted}: {json.dumps(plan, indent=1)}"


@pytest.mark.parametrize(
    "wanted",
    [
        LetterFilter(outcome=Outcome.FAILED),
        LetterFilter(reason="expired"),
        LetterFilter(outcome=Outcome.FAILED, reason="expired", worker_id=1),
    ],
)
async def test_in_a_flood_a_page_of_the_usual_ones_ends_when_it_is_full(
    store: Database, host: Host, monkeypatch: pytest.MonkeyPatch, wanted: LetterFilter
) -> None:
    await a_flood(host)
    plans = Plans()
    plans.note(monkeypatch)
    page = await search_sql.search(store, wanted, limit=50)

    assert len(page.records) == 50
    [read] = plans.rows_read("letter")
    assert read <= 51 + RARE_IN_FLOOD, plans


async def test_of_a_usual_and_a_rare_condition_the_rare_one_says_what_is_read(
    store: Database, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_flood(host)
    plans = Plans()
    plans.note(monkeypatch)
    page = await search_sql.search(store, LetterFilter(outcome=Outcome.FAILED, worker_id=99))

    assert page.records == []
    assert plans.rows_read("letter") == [RARE_IN_FLOOD], plans
