"""What a status asks of the tables: right to the minute, and read from counts however many letters there are."""

from datetime import UTC, datetime, timedelta

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import groups_sql, records_sql, search_sql
from dlq_handler.dead_letters import records_sql as letters
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.listing import LetterFilter
from dlq_handler.dead_letters.record import Entry
from dlq_handler.diagnosis import status_sql as status
from dlq_handler.diagnosis.status_sql import Harm
from dlq_handler.diagnosis.view import AttuneMonitorFact
from tests.support.builders import a_dead_letter, a_death
from tests.support.deciding import letter_ender
from tests.support.host_tables import Host
from tests.support.plans import Plans

REQUESTS = "attune.execution.requests.queue"


async def record(store: Database, letter: DeadLetter, outcome: Outcome) -> None:
    async with store.transaction() as tx:
        entry = Entry(letter=letter, outcome=outcome, explanation="because")
        await groups_sql.count_letters(tx, await records_sql.record_letters(tx, [entry], replica="here"))


async def move_back(host: Host, by: timedelta) -> None:
    """All that came until now came so much earlier."""
    await host.session.execute("UPDATE dlq_handler.letter_minute SET minute = minute - $1::interval", by)
    await host.session.execute("UPDATE dlq_handler.letter_group SET first_at = first_at - $1::interval", by)


def odd(key: str, **changes: object) -> DeadLetter:
    return a_dead_letter(key=key, message_type="Odd", **changes)


async def test_unusable_letters_are_those_of_two_spans_and_since_is_their_beginning(
    store: Database, host: Host
) -> None:
    """One stray letter of yesterday is not when it began."""
    await record(store, odd("stray"), Outcome.UNRELATED)
    await move_back(host, timedelta(hours=20))
    await record(store, odd("first"), Outcome.UNRELATED)
    await move_back(host, timedelta(minutes=20))
    await record(store, odd("now"), Outcome.UNRELATED)
    await record(store, a_dead_letter(key="torn", parse_error="no JSON"), Outcome.UNREADABLE)
    now: datetime = await host.session.fetchval("SELECT now()")

    seen = await status.unusable_letters(store, requests_queue=REQUESTS)

    assert (seen.unreadable, seen.unrelated, seen.before, seen.declined) == (1, 1, 1, 0)
    assert seen.first_at is not None
    assert timedelta(minutes=20) <= now - seen.first_at < timedelta(minutes=22)


async def test_after_a_pause_it_began_with_the_first_letter_after_it(store: Database, host: Host) -> None:
    await record(store, odd("stray"), Outcome.UNRELATED)
    await move_back(host, timedelta(hours=20))
    await record(store, odd("now"), Outcome.UNRELATED)
    now: datetime = await host.session.fetchval("SELECT now()")

    seen = await status.unusable_letters(store, requests_queue=REQUESTS)

    assert (seen.unrelated, seen.before) == (1, 0)
    assert seen.first_at is not None
    assert now - seen.first_at < timedelta(minutes=2)


async def test_what_was_declined_or_failed_its_execution_after_all_is_not_unusable(
    store: Database, host: Host
) -> None:
    declined = a_dead_letter(
        key="declined",
        routing_key="execution.requested",
        first_death_queue=REQUESTS,
        death=a_death(queue=REQUESTS, reason="rejected"),
    )
    await record(store, declined, Outcome.UNRELATED)
    await record(store, odd("late"), Outcome.UNRELATED)
    [_, late] = await host.letters()
    async with store.transaction() as tx:
        ended = Entry(letter=odd("late"), outcome=Outcome.FAILED, explanation="it is known by now")
        await groups_sql.count_reprocessed(tx, late["id"], ended)

    seen = await status.unusable_letters(store, requests_queue=REQUESTS)

    assert (seen.unreadable, seen.unrelated, seen.before, seen.declined) == (0, 0, 0, 1)
    assert seen.first_at is None


async def test_harm_belongs_to_the_worker_in_whose_queue_letters_died(store: Database, host: Host) -> None:
    await record(store, a_dead_letter(key="earlier"), Outcome.FAILED)
    await move_back(host, timedelta(hours=2))
    await record(store, a_dead_letter(key="before"), Outcome.FAILED)
    await move_back(host, timedelta(minutes=30))
    await record(store, a_dead_letter(key="expired"), Outcome.ALREADY_TERMINAL)
    await record(store, a_dead_letter(key="full", death=a_death(reason="maxlen")), Outcome.FAILED)
    await record(store, a_dead_letter(key="nobodys", first_death_queue="q"), Outcome.FAILED)
    await host.session.execute(
        """
        INSERT INTO dlq_handler.stale_decision (
            execution_id, attempt_updated_at, original_status, outcome, worker_id, explanation, evidence, decided_at,
            replica)
        SELECT n, now(), 'running', 'abandoned', 8, '', '{}', now() - make_interval(mins => n * 40), ''
          FROM generate_series(1, 2) AS n
        """
    )

    assert await status.harm_by_worker(store) == {
        7: Harm(ended_last_hour=2, expired_lately=1),
        8: Harm(ended_last_hour=1, expired_lately=0),
    }


async def test_no_letter_is_read_and_of_the_counts_no_more_than_an_hour(
    store: Database, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    minutes, groups = 2000, 20
    await host.session.execute(
        f"""
        INSERT INTO dlq_handler.letter (key, reason, exchange, routing_key, body, body_size, outcome, explanation,
                                        received_at, decided_at, replica, worker_id)
        SELECT n, 'expired', '', '', '', 0, 'unrelated', '', now(), now(), '', 7 FROM generate_series(1, 20000) AS n;
        INSERT INTO dlq_handler.letter_group
        SELECT 'group-' || g, 'unrelated', 'expired', 'worker.7.executions', 'Odd', 7, now(), now(), 1, 0, '{{}}'
          FROM generate_series(1, {groups}) AS g;
        INSERT INTO dlq_handler.letter_minute
        SELECT date_trunc('minute', now()) - make_interval(mins => m), 'group-' || g, 1, 0, now(), 1
          FROM generate_series(0, {minutes - 1}) AS m, generate_series(1, {groups}) AS g;
        ANALYZE dlq_handler.letter; ANALYZE dlq_handler.letter_group; ANALYZE dlq_handler.letter_minute
        """
    )
    plans = Plans()
    plans.note(monkeypatch)
    harm = await status.harm_by_worker(store)
    unusable = await status.unusable_letters(store, requests_queue=REQUESTS)

    assert harm[7].expired_lately in (5 * groups, 6 * groups, 7 * groups)
    assert unusable.unrelated >= 15 * groups
    assert plans.rows_read("letter") == [0, 0], plans
    # A minute more at each end: a span begins with a whole one, and the next may have begun meanwhile.
    for read, most in zip(plans.rows_read("letter_minute"), (62 * groups, 32 * groups), strict=True):
        assert 0 < read <= most, plans


async def test_rejected_requests_are_one_record_per_execution_and_counted_as_executions(
    store: Database, host: Host
) -> None:
    """Eight requests of each of three executions, some of them in one batch."""
    ids = await host.add_executions(3, status="requested")
    letters = [
        a_dead_letter(
            key=f"rejected request of {one}",
            execution_id=one,
            worker_id=None,
            routing_key="execution.requested",
            first_death_queue=REQUESTS,
            death=a_death(queue=REQUESTS, reason="rejected"),
        )
        for one in ids
    ]
    decide = letter_ender(store)
    await decide.commit([*letters, *letters])
    for _ in range(3):
        await decide.commit([*reversed(letters), *letters])

    records = await host.letters()
    assert [(row["execution_id"], row["repeats"]) for row in records] == [(one, 7) for one in ids]
    assert all(row["repeated_at"] > row["received_at"] for row in records)
    assert (await status.unusable_letters(store, requests_queue=REQUESTS)).declined == 3

    await host.session.execute(
        "UPDATE dlq_handler.letter SET received_at = received_at - interval '1 hour' WHERE execution_id <> $1;",
        ids[0],
    )
    assert (await status.unusable_letters(store, requests_queue=REQUESTS)).declined == 3, "repeats are recent"
    await host.session.execute(
        "UPDATE dlq_handler.letter SET repeated_at = received_at WHERE execution_id <> $1", ids[0]
    )
    assert (await status.unusable_letters(store, requests_queue=REQUESTS)).declined == 1


async def test_requests_that_are_rejected_again_stay_in_the_windows_of_groups_and_letters(
    store: Database, host: Host
) -> None:
    """First rejected two hours ago, again now."""
    [one] = await host.add_executions(1, status="requested")
    letter = a_dead_letter(
        key=f"rejected request of {one}",
        execution_id=one,
        worker_id=None,
        routing_key="execution.requested",
        first_death_queue=REQUESTS,
        death=a_death(queue=REQUESTS, reason="rejected"),
    )
    other = a_dead_letter(key="delivered again")
    decide = letter_ender(store)
    await decide.commit([letter, other])
    for table in (
        "letter SET received_at = received_at",
        "letter SET decided_at = decided_at",
        "letter_group SET last_at = last_at",
    ):
        await host.session.execute(f"UPDATE dlq_handler.{table} - interval '2 hours'")
    await host.session.execute("UPDATE dlq_handler.letter_minute SET minute = minute - interval '2 hours'")
    since, until = datetime.now(UTC) - timedelta(hours=1), datetime.now(UTC) + timedelta(hours=1)
    wanted = LetterFilter(since=since, until=until)
    assert (await search_sql.search(store, wanted)).records == []

    for _ in range(5):
        await decide.commit([letter, other])

    assert [record.execution_id for record in (await search_sql.search(store, wanted)).records] == [one]
    [found] = await groups_sql.groups(store, since=since, until=until)
    assert (found.letters, found.group.letters) == (5, 6)
    assert found.group.last_at > since
    assert (
        sum(each.letters for each in await groups_sql.letters_per_minute(store, since=since, until=until))
        == 5
    )
    for delete_old in (letters.delete_resolved, letters.delete_unresolved):
        await delete_old(store, older_than_seconds=3600)
    assert [row["execution_id"] for row in await host.letters()] == [one], "a rejection that goes on is kept"


async def test_ends_of_attunes_own_monitor_are_counted_for_an_hour(store: Database, host: Host) -> None:
    worker = await host.add_worker()

    async def ended(status: str, result: str) -> int:
        number = await host.add_execution(worker=worker)
        await host.session.execute(
            f"UPDATE execution SET status = '{status}', result = $2::text::jsonb WHERE id = $1",
            number,
            result,
        )
        return number

    await ended("failed", '{"failed_by": "dlq_handler"}')
    await ended("failed", '{"failed_by": "execution_timeout_monitor"}')
    await ended("abandoned", '{"abandoned_by": "execution_timeout_monitor"}')
    await ended("abandoned", '"of a worker"')
    assert (await status.attune_monitor(store, is_enabled=False)).ended == 2

    await host.session.execute("ALTER TABLE execution DISABLE TRIGGER USER")
    await host.session.execute("UPDATE execution SET updated = now() - interval '61 minutes'")
    assert await status.attune_monitor(store, is_enabled=False) == AttuneMonitorFact(
        is_enabled=False, span_seconds=3600
    )


@pytest.mark.parametrize(("becomes", "signature"), [("failed", "failed_by"), ("abandoned", "abandoned_by")])
async def test_worker_deleted_meanwhile_makes_no_end_of_attunes_monitor_new(
    store: Database, host: Host, becomes: str, signature: str
) -> None:
    """Deleting a worker moves the `updated` of every execution that it ever had."""
    worker = await host.add_worker()
    number = await host.add_execution(
        status=becomes, worker=worker, result={signature: "execution_timeout_monitor"}
    )
    await host.session.execute("ALTER TABLE execution DISABLE TRIGGER USER")
    await host.session.execute("UPDATE execution SET updated = now() - interval '60 days'")
    await host.session.execute("ALTER TABLE execution ENABLE TRIGGER USER")
    await host.session.execute("DELETE FROM worker WHERE id = $1", worker)
    [row] = await host.session.fetch("SELECT updated > now() - interval '1 hour' AS is_new FROM execution")
    assert row["is_new"], f"execution {number} was not touched: the case is not the one that is meant"
    assert await status.attune_monitor(store, is_enabled=False) == AttuneMonitorFact(
        is_enabled=False, span_seconds=3600
    )
