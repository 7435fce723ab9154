"""The brake on a real database: what fits is ended, the rest waits, and one state holds for all replicas."""

import asyncio
import contextlib
import math
from collections.abc import Sequence
from typing import Any, cast

import pytest
from sqlalchemy.exc import DBAPIError
from structlog.testing import capture_logs

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import records_sql
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.record import Entry
from dlq_handler.errors import Braked, Contended, Unavailable
from dlq_handler.host.executions_sql import end_executions, lock_executions
from dlq_handler.metrics import Metrics
from dlq_handler.rooms import new_metrics
from dlq_handler.safety import brake_service as service
from dlq_handler.safety import brake_sql as store_brake
from tests.support.builders import a_dead_letter
from tests.support.deciding import a_reprocessor, letter_ender
from tests.support.fail_safe import a_brake
from tests.support.host_tables import Host, decided, endings_of
from tests.support.stale_world import Replica, StaleWorld


async def letters_of(host: Host, count: int) -> list[DeadLetter]:
    return [await host.letter_for(number) for number in await host.add_executions(count)]


async def failed(host: Host) -> int:
    return int(await host.session.fetchval("SELECT count(*) FROM execution WHERE status = 'failed'"))


async def the_row(host: Host) -> dict[str, Any]:
    [row] = await host.session.fetch("SELECT * FROM dlq_handler.brake")
    return dict(row)


async def pass_the_hold(host: Host) -> None:
    await host.session.execute("UPDATE dlq_handler.brake SET hold_until = now() - interval '1 second'")


async def pass_a_minute(host: Host) -> None:
    await host.session.execute("UPDATE dlq_handler.change_count SET at = at - interval '61 seconds'")


async def release(store: Database, for_seconds: float = 600) -> None:
    async with store.transaction() as tx:
        await store_brake.release(tx, by="me@here", for_seconds=for_seconds)


def keys(letters: Sequence[DeadLetter]) -> set[str]:
    return {letter.key for letter in letters}


async def test_executions_within_the_limit_end_the_rest_is_postponed_and_the_brake_trips(
    store: Database, host: Host
) -> None:
    letters = await letters_of(host, 8)
    decide = letter_ender(store, brake=a_brake(store, limit=5, replica="replica-1"))
    committed = await decide.commit(letters)
    assert committed.postponed == keys(letters[5:])
    assert await failed(host) == 5
    assert [row["key"] for row in await host.letters()] == [letter.key for letter in letters[:5]]
    assert len(await host.outbox()) == 5
    row = await the_row(host)
    assert row["tripped_by"] == "replica-1"
    assert (row["hold_until"] - row["tripped_at"]).total_seconds() == pytest.approx(600, abs=1)
    assert "5 executions ended" in row["explanation"]
    assert "3 more" in row["explanation"]


async def test_while_it_holds_nothing_is_written_and_the_intake_stays_closed(
    store: Database, host: Host
) -> None:
    letters = await letters_of(host, 3)
    decide = letter_ender(store, brake=a_brake(store, limit=1))
    await decide.commit(letters)
    for attempt in (decide.commit(letters[1:]), decide.check()):
        with pytest.raises(Braked, match=r"nothing is ended until .* or `dlq-handler brake release`"):
            await attempt
    assert await failed(host) == len(await host.letters()) == 1


async def test_hold_of_zero_seconds_lasts_until_released(store: Database, host: Host) -> None:
    decide = letter_ender(store, brake=a_brake(store, limit=1, hold_seconds=0))
    await decide.commit(await letters_of(host, 2))
    assert (await the_row(host))["hold_until"] is None
    with pytest.raises(Braked, match="until `dlq-handler brake release`"):
        await decide.check()


async def test_after_the_hold_it_goes_on_at_the_limits_rate_with_the_state_still_up(
    store: Database, host: Host
) -> None:
    metrics = new_metrics()
    letters = await letters_of(host, 9)
    decide = letter_ender(store, brake=a_brake(store, limit=3, metrics=metrics))
    await decide.commit(letters)
    tripped_at = (await the_row(host))["tripped_at"]
    await pass_the_hold(host)
    await decide.check()
    committed = await decide.commit(letters[3:])
    assert committed.postponed == keys(letters[3:]), "the minute is full"
    await pass_a_minute(host)
    committed = await decide.commit(letters[3:])
    assert committed.postponed == keys(letters[6:])
    assert await failed(host) == 6
    assert (await the_row(host))["tripped_at"] == tripped_at, "it does not trip again"
    assert metrics.registry.get_sample_value("dlq_handler_brake_state") == 2


async def test_released_brake_has_no_limit_for_a_while_and_trips_again_afterwards(
    store: Database, host: Host
) -> None:
    decide = letter_ender(store, brake=a_brake(store, limit=2))
    await decide.commit(await letters_of(host, 3))
    await release(store)
    row = await the_row(host)
    assert (row["tripped_at"], row["released_by"]) == (None, "me@here")
    assert not (await decide.commit(await letters_of(host, 10))).postponed
    await host.session.execute("UPDATE dlq_handler.brake SET released_until = now()")
    letters = await letters_of(host, 1)
    assert (await decide.commit(letters)).postponed == keys(letters)
    assert (await the_row(host))["tripped_at"] is not None


async def test_release_that_comes_between_reading_and_tripping_wins(store: Database, host: Host) -> None:
    brake = a_brake(store, limit=1)
    async with store.transaction() as tx:
        assert await brake.room(tx) == 1
        await release(store)
        await brake.note(tx, 1, 5)
    assert (await the_row(host))["tripped_at"] is None


async def test_trip_is_undone_with_its_transaction(store: Database, host: Host) -> None:
    brake = a_brake(store, limit=1)

    async def trip_and_fail() -> None:
        async with store.transaction() as tx:
            await brake.note(tx, 1, 5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await trip_and_fail()
    assert (await the_row(host))["tripped_at"] is None


async def test_letters_that_end_nothing_need_no_room(store: Database, host: Host) -> None:
    decide = letter_ender(store, brake=a_brake(store, limit=1))
    await decide.commit(await letters_of(host, 1))
    done = await host.add_execution(status="completed")
    committed = await decide.commit(
        [await host.letter_for(done), a_dead_letter(key="?", parse_error="unreadable")]
    )
    assert not committed.postponed
    assert (await the_row(host))["tripped_at"] is None


async def test_guard_that_misses_is_not_counted(store: Database, host: Host) -> None:
    [letter] = await letters_of(host, 1)
    async with store.transaction() as tx:
        view = await lock_executions(tx, [letter.execution_id or 0])
        endings = endings_of(decided([letter], view))
        await tx.run("UPDATE execution SET config = '{}' WHERE id = :id", id=letter.execution_id)
        assert await end_executions(tx, endings) == set()
    assert await host.session.fetch("SELECT * FROM dlq_handler.change_count") == []


async def test_batches_at_once_trip_it_once_and_go_past_the_limit_by_themselves_at_most(
    store: Database, host: Host
) -> None:
    shares = [await letters_of(host, 200) for _ in range(4)]
    metrics = [new_metrics() for _ in shares]
    brakes = [
        a_brake(store, limit=50, replica=f"replica-{number}", metrics=one)
        for number, one in enumerate(metrics)
    ]
    for brake in brakes:
        await brake.tick()

    async def end(letters: list[DeadLetter], number: int) -> None:
        decide = letter_ender(store, brake=brakes[number])
        with contextlib.suppress(Braked):
            while letters:
                held_over = (await decide.commit(letters[:40])).postponed
                letters = [letter for letter in letters[:40] if letter.key in held_over] + letters[40:]

    async with asyncio.TaskGroup() as replicas:
        for number, letters in enumerate(shares):
            replicas.create_task(end(letters, number))
    assert 50 <= await failed(host) < 50 + 4 * 40
    assert len(await host.letters()) == await failed(host)
    for brake in brakes:
        await brake.tick()
    assert [one.registry.get_sample_value("dlq_handler_brake_trips_total") for one in metrics] == [1, 1, 1, 1]


async def test_every_replica_logs_a_trip_and_a_release_once(store: Database, host: Host) -> None:
    metrics = new_metrics()
    other = a_brake(store, limit=1, metrics=metrics)
    await other.tick()
    await letter_ender(store, brake=a_brake(store, limit=1, replica="replica-1")).commit(
        await letters_of(host, 2)
    )
    with capture_logs() as logged:
        for _ in range(3):
            await other.tick()
    assert [line["event"] for line in logged] == ["brake.tripped"]
    assert logged[0]["by"] == "replica-1"
    assert logged[0]["log_level"] == "error"
    sample = metrics.registry.get_sample_value
    assert sample("dlq_handler_brake_state") == 1
    assert sample("dlq_handler_brake_trips_total") == 1
    assert sample("dlq_handler_decisions_last_minute") == 1
    await release(store)
    with capture_logs() as logged:
        for _ in range(3):
            await other.tick()
    assert [(line["event"], line["by"]) for line in logged] == [("brake.released", "me@here")]
    assert sample("dlq_handler_brake_state") == 0


async def test_replica_that_starts_beside_a_tripped_brake_says_so_and_counts_no_trip(
    store: Database, host: Host
) -> None:
    await letter_ender(store, brake=a_brake(store, limit=1)).commit(await letters_of(host, 2))
    metrics = new_metrics()
    with capture_logs() as logged:
        await a_brake(store, limit=1, metrics=metrics).tick()
    assert [line["event"] for line in logged] == ["brake.tripped"]
    assert metrics.registry.get_sample_value("dlq_handler_brake_trips_total") == 0


async def test_brake_shows_no_number_once_its_look_is_old_or_the_next_one_fails(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, now = new_metrics(), monotonic_seconds()
    brake = a_brake(store, limit=1, metrics=metrics)
    assert shows_no_number(metrics), "the state was not read yet"
    monkeypatch.setattr(service, "monotonic_seconds", lambda: now)
    await brake.tick()
    # No tick comes, as none does while the database hangs: the scrape itself knows how old the look is.
    monkeypatch.setattr(service, "monotonic_seconds", lambda: now + 10)
    assert not shows_no_number(metrics)
    monkeypatch.setattr(service, "monotonic_seconds", lambda: now + 10.1)
    assert shows_no_number(metrics)

    await brake.tick()
    assert not shows_no_number(metrics)
    monkeypatch.setattr(store_brake, "read_brake", contended)
    with pytest.raises(Contended):
        await brake.tick()
    assert shows_no_number(metrics)


async def contended(_: object) -> None:
    raise Contended("locked, on purpose")


def shows_no_number(metrics: Metrics) -> bool:
    values = [
        metrics.registry.get_sample_value(f"dlq_handler_{name}")
        for name in ("brake_state", "decisions_last_minute")
    ]
    return all(value is not None and math.isnan(value) for value in values)


async def test_without_a_limit_the_database_is_not_asked(store: Database) -> None:
    brake = a_brake(store, limit=0)
    no_transaction = cast("Any", None)
    assert await brake.room(no_transaction) is None
    await brake.note(no_transaction, 1000, 1000)


async def test_emptied_table_is_a_normal_state_and_can_be_tripped_and_released(
    store: Database, host: Host
) -> None:
    await host.session.execute("DELETE FROM dlq_handler.brake")
    brake = a_brake(store, limit=1)
    await letter_ender(store, brake=brake).commit(await letters_of(host, 2))
    assert (await the_row(host))["tripped_at"] is not None
    await host.session.execute("DELETE FROM dlq_handler.brake")
    await release(store)
    assert (await the_row(host))["released_until"] is not None


async def test_old_counts_are_deleted_and_those_of_the_minute_stay(store: Database, host: Host) -> None:
    await host.session.execute(
        "INSERT INTO dlq_handler.change_count VALUES (now() - interval '1 hour', 7), (now(), 5)"
    )
    await a_brake(store, limit=100).delete_old_counts()
    assert await host.session.fetchval("SELECT sum(changed) FROM dlq_handler.change_count") == 5


async def test_kept_letter_that_the_brake_has_no_room_for_keeps_its_place(
    store: Database, host: Host
) -> None:
    decide = letter_ender(store, brake=a_brake(store, limit=1))
    await decide.commit(await letters_of(host, 1))
    [letter] = await letters_of(host, 1)
    async with store.transaction() as tx:
        kept = Entry(letter=letter, outcome=Outcome.UNKNOWN_EXECUTION, explanation="test")
        await records_sql.record_letters(tx, [kept], replica="test")
    record_id = (await host.letters())[-1]["id"]
    reprocessor = a_reprocessor(store, brake=a_brake(store, limit=1))
    assert await reprocessor.reprocess(record_id) is None
    assert (await host.letters())[-1]["outcome"] == "unknown_execution"
    assert (await the_row(host))["tripped_at"] is not None
    with pytest.raises(Braked):
        await reprocessor.reprocess(record_id)
    await release(store)
    reprocessed = await reprocessor.reprocess(record_id)
    assert reprocessed
    assert reprocessed.outcome is Outcome.FAILED


async def is_limited(host: Host) -> None:
    await host.session.execute(
        "UPDATE dlq_handler.brake SET tripped_at = now() - interval '1 hour', hold_until = now(), tripped_by = 'test'"
    )


async def most_in_a_window(host: Host, seconds: float) -> int:
    """The highest number of executions ended within so many seconds, whenever these begin."""
    rows = await host.session.fetch(
        "SELECT sum(changed) OVER (ORDER BY at RANGE make_interval(secs => $1) PRECEDING) AS ended"
        " FROM dlq_handler.change_count",
        seconds - 0.000_001,
    )
    return max(int(row["ended"]) for row in rows)


async def test_limited_mode_is_exact_with_two_replicas_letters_and_monitor_side_by_side(
    store: Database, host: Host, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, window_seconds, batch_size = 30, 2, 20
    monkeypatch.setattr(store_brake, "WINDOW_SECONDS", window_seconds)
    it = StaleWorld(store, host)
    await it.stale_ones(40, worker=await it.a_dead_worker())
    shares = [await letters_of(host, 25) for _ in range(4)]
    await is_limited(host)
    databases = [Database(database, pool_size=4) for _ in range(2)]

    async def write_letters(replica: Database, letters: list[DeadLetter]) -> None:
        decide = letter_ender(replica, brake=a_brake(replica, limit=limit, batch_size=batch_size))
        while letters:
            batch, rest = letters[:batch_size], letters[batch_size:]
            with contextlib.suppress(Contended):
                held_over = (await decide.commit(batch)).postponed
                batch = [letter for letter in batch if letter.key in held_over]
            letters = batch + rest

    async def scan(replica: Database, name: str) -> None:
        monitor = Replica(replica, it.queue_observer, name=name, limit=limit, batch_size=batch_size)
        while await failed(host) < 140:
            with contextlib.suppress(Unavailable, Contended):
                await monitor.scan()

    async with asyncio.timeout(60), asyncio.TaskGroup() as writers:
        for number, letters in enumerate(shares):
            writers.create_task(write_letters(databases[number % 2], letters))
        for number, replica in enumerate(databases):
            writers.create_task(scan(replica, f"replica-{number}"))
    assert await failed(host) == 140
    assert await most_in_a_window(host, window_seconds) <= limit
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert await host.session.fetchval(deadlocks) == 0
    for one in databases:
        await one.dispose()


@pytest.mark.parametrize(("ended", "waits"), [(20, False), (21, True)])
async def test_only_with_little_room_transactions_take_turns(
    store: Database, host: Host, ended: int, waits: bool
) -> None:
    """Four batches of 20 are enough."""
    brake = a_brake(store, limit=100, batch_size=20)
    await host.session.execute("INSERT INTO dlq_handler.change_count VALUES (now(), $1)", ended)
    async with store.transaction() as first:
        await store_brake.lock_room(first)
        async with store.transaction(lock_timeout_ms=50) as second:
            if waits:
                with pytest.raises(DBAPIError, match="lock timeout"):
                    await brake.room(second)
                await second.connection.rollback()
            else:
                assert await brake.room(second) == 100 - ended


async def test_the_intake_is_checked_without_taking_turns(store: Database, host: Host) -> None:
    await is_limited(host)
    async with store.transaction() as first:
        await store_brake.lock_room(first)
        await letter_ender(store, brake=a_brake(store, limit=1, batch_size=20)).check()
