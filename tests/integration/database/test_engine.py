"""Transactions: their settings, their deadline, and in whose words their errors come out."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from dlq_handler.database import link
from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters import records_sql
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.record import Entry
from dlq_handler.errors import Contended, RowRefused, TooSlow, Unavailable
from dlq_handler.settings import load
from dlq_handler.settings.databases import database_of, ui_database_of
from tests.support.builders import a_dead_letter
from tests.support.host_tables import Host
from tests.support.tcp_proxy import TcpProxy

DatabaseFactory = Callable[..., Database]


@pytest.fixture
async def a_database(database: str) -> AsyncIterator[DatabaseFactory]:
    """Makes stores that are disposed of at the end."""
    made: list[Database] = []

    def make(parameters: str = "", **options: Any) -> Database:
        made.append(Database(f"{database}{'&' if '?' in database else '?'}{parameters}", **options))
        return made[-1]

    yield make
    for store in made:
        await store.dispose()


@pytest.fixture
async def proxy(database: str) -> AsyncIterator[TcpProxy]:
    async with TcpProxy.to(database) as proxy:
        yield proxy


@pytest.fixture
async def behind_proxy(proxy: TcpProxy) -> AsyncIterator[Database]:
    store = Database(proxy.url, pool_size=1, connect_timeout_seconds=0.5, statement_timeout_ms=500)
    yield store
    await proxy.heal()
    await store.dispose()


async def ask(store: Database, sql: str) -> object:
    async with store.transaction() as tx:
        row = await tx.row(sql)
    assert row is not None
    return row[0]


async def ask_after(store: Database, fault: Callable[[], None]) -> None:
    """Meet a fault of the network in the middle of a transaction."""
    async with store.transaction() as tx:
        fault()
        await tx.run("SELECT 1")


@pytest.mark.parametrize(
    "parameters",
    [
        "sslmode=disable",
        "sslmode=prefer&connect_timeout=3&keepalives=1&keepalives_idle=20&keepalives_interval=5&keepalives_count=3",
        "tcp_user_timeout=10000&target_session_attrs=read-write&channel_binding=prefer&gssencmode=disable",
        "client_encoding=UTF8",
    ],
)
async def test_libpq_parameters_in_the_url_work(a_database: DatabaseFactory, parameters: str) -> None:
    assert await ask(a_database(parameters), "SELECT 1") == 1


async def test_parameters_for_the_server_reach_it(a_database: DatabaseFactory) -> None:
    store = a_database("application_name=mine&options=-c%20geqo%3Doff")
    assert await ask(store, "SELECT current_setting('application_name')") == "mine"
    assert await ask(store, "SELECT current_setting('geqo')") == "off"


async def test_sslmode_is_obeyed(a_database: DatabaseFactory) -> None:
    has_ssl = await ask(a_database(), "SELECT current_setting('ssl')") == "on"
    store = a_database("sslmode=require")
    if has_ssl:
        assert await ask(store, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") is True
    else:
        with pytest.raises(Unavailable, match="SSL"):
            await store.ping()


async def test_transaction_finds_the_host_and_leaves_no_trace_on_the_connection(
    a_database: DatabaseFactory,
) -> None:
    store = a_database(pool_size=1)
    async with store.transaction() as tx:
        await tx.run("SELECT count(*) FROM execution")
        row = await tx.row("SELECT current_setting('search_path'), current_setting('lock_timeout')")
        assert row is not None
        assert tuple(row) == ('"attune", public', "2s")
    async with store._engine.connect() as connection:
        left = (
            await connection.exec_driver_sql(
                "SELECT current_setting('search_path'), current_setting('lock_timeout'),"
                " current_setting('statement_timeout'), (SELECT count(*) FROM pg_prepared_statements)"
            )
        ).one()
    assert tuple(left) == ('"$user", public', "0", "0", 0)


async def test_test_schemas_get_no_public(a_database: DatabaseFactory) -> None:
    store = a_database(host_schema='test_of"quotes')
    assert await ask(store, "SELECT current_setting('search_path')") == '"test_of""quotes"'


async def raise_sqlstate(tx: Transaction, sqlstate: str) -> None:
    await tx.run(f"DO $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '{sqlstate}'; END $$")


@pytest.mark.parametrize(("sqlstate", "expected"), [("23514", RowRefused), ("57014", TooSlow)])
async def test_the_kind_of_an_error_is_read_from_the_servers_sqlstate(
    store: Database, sqlstate: str, expected: type[Exception]
) -> None:
    with pytest.raises(expected, match="on purpose"):
        async with store.transaction() as tx:
            await raise_sqlstate(tx, sqlstate)


async def test_lock_that_is_not_given_in_time_is_contention(store: Database, host: Host) -> None:
    execution_id = await host.add_execution()
    async with host.holding(execution_id):
        with pytest.raises(Contended):
            async with store.transaction(lock_timeout_ms=20) as tx:
                await tx.run("SELECT 1 FROM execution WHERE id = :id FOR UPDATE", id=execution_id)


async def test_error_at_commit_is_our_trouble_whatever_its_class(store: Database, host: Host) -> None:
    await host.session.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'too late' USING ERRCODE = '23514'; END $$;"
        "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON dlq_handler.letter DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    entry = Entry(letter=a_dead_letter(), outcome=Outcome.UNRELATED, explanation="because")
    with pytest.raises(Unavailable, match="commit"):
        async with store.transaction() as tx:
            await records_sql.record_letters(tx, [entry], replica="here")
    assert await host.letters() == []


async def test_value_that_cannot_be_encoded_is_the_rows_fault_and_is_not_quoted(store: Database) -> None:
    with pytest.raises(RowRefused) as refused:
        async with store.transaction() as tx:
            await tx.run("SELECT CAST(:value AS text)", value="secret\ud800")
    assert "secret" not in str(refused.value)


async def test_error_text_holds_neither_parameters_nor_the_detail(store: Database) -> None:
    async def write_twice() -> None:
        async with store.transaction() as tx:
            await tx.run("CREATE TEMP TABLE once (word text UNIQUE)")
            await tx.run("INSERT INTO once VALUES (:word), (:word)", word="secret")

    with pytest.raises(RowRefused) as refused:
        await write_twice()
    assert "secret" not in str(refused.value)


async def test_wrong_password_is_not_quoted(database: str) -> None:
    user_and_secret = "user:s3cret%40word"
    scheme, _, rest = database.partition("://")
    store = Database(f"{scheme}://{user_and_secret}@{rest.rpartition('@')[2]}")
    with pytest.raises(Unavailable) as refused:
        await store.ping()
    assert "s3cret" not in str(refused.value)
    await store.dispose()


@pytest.mark.parametrize("is_half_open", [True, False])
async def test_server_that_cannot_be_connected_to_is_unavailable(
    proxy: TcpProxy, behind_proxy: Database, is_half_open: bool
) -> None:
    if is_half_open:
        proxy.freeze()
    else:
        await proxy.refuse()
    with pytest.raises(Unavailable, match="connect"):
        await behind_proxy.ping()


async def test_cut_connection_is_unavailable_and_the_next_transaction_works(
    proxy: TcpProxy, behind_proxy: Database
) -> None:
    with pytest.raises(Unavailable):
        await ask_after(behind_proxy, proxy.cut)
    await behind_proxy.ping()


async def test_half_open_connection_is_given_up_in_time_and_never_used_again(
    proxy: TcpProxy, behind_proxy: Database
) -> None:
    await behind_proxy.ping()
    connections = proxy.accepted
    with pytest.raises(Unavailable, match="no answer in time"):
        await ask_after(behind_proxy, proxy.freeze)
    await proxy.heal()
    await behind_proxy.ping()
    assert proxy.accepted > connections


async def test_commit_into_a_half_open_connection_is_given_up(
    proxy: TcpProxy, behind_proxy: Database
) -> None:
    with pytest.raises(Unavailable, match="commit"):
        async with behind_proxy.transaction():
            proxy.freeze()


async def test_block_that_overstays_on_a_half_open_connection_is_ended_without_waiting_for_a_rollback(
    proxy: TcpProxy, behind_proxy: Database
) -> None:
    async def linger() -> None:
        async with behind_proxy.transaction():
            proxy.freeze()
            await asyncio.Event().wait()

    async with asyncio.timeout(30):
        with pytest.raises(Unavailable, match="no answer in time"):
            await linger()


async def test_cancelled_transaction_stays_cancelled_and_leaves_the_pool_whole(
    a_database: DatabaseFactory,
) -> None:
    store = a_database(pool_size=1)
    started = asyncio.Event()

    async def never_ending() -> None:
        async with store.transaction() as tx:
            started.set()
            await tx.run("SELECT pg_sleep(60)")

    for _ in range(3):
        started.clear()
        task = asyncio.create_task(never_ending())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await store.ping()


async def test_error_of_the_block_itself_rolls_back_and_passes_through(store: Database, host: Host) -> None:
    execution_id = await host.add_execution()

    async def change_and_stumble() -> None:
        async with store.transaction() as tx:
            await tx.run("UPDATE execution SET status = 'running' WHERE id = :id", id=execution_id)
            raise KeyError

    with pytest.raises(KeyError):
        await change_and_stumble()
    assert (await host.execution(execution_id))["status"] == "scheduled"


async def test_link_has_an_age_only_while_it_answers(
    proxy: TcpProxy, behind_proxy: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(link, "monotonic_seconds", lambda: now)
    assert behind_proxy.link_age_seconds == 0
    await behind_proxy.ping()
    now += 10
    await behind_proxy.ping()
    now += 10
    assert behind_proxy.link_age_seconds == 20

    await proxy.refuse()
    with pytest.raises(Unavailable):
        await behind_proxy.ping()
    assert behind_proxy.link_age_seconds == 0
    await proxy.heal()
    await behind_proxy.ping()
    now += 5
    assert behind_proxy.link_age_seconds == 5


async def test_refused_row_does_not_break_the_link(
    behind_proxy: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(link, "monotonic_seconds", lambda: now)
    await behind_proxy.ping()
    now += 3
    with pytest.raises(RowRefused):
        async with behind_proxy.transaction() as tx:
            await raise_sqlstate(tx, "22023")
    assert behind_proxy.link_age_seconds == 3


async def overstay(store: Database) -> None:
    """A transaction of many statements, each of them answered, that takes too long as a whole."""
    async with store.transaction() as tx:
        while True:
            await tx.run("SELECT 1")


async def test_a_transaction_of_too_many_statements_does_not_break_the_link(behind_proxy: Database) -> None:
    await behind_proxy.ping()
    with pytest.raises(TooSlow, match="took longer than 3 s in all"):
        await overstay(behind_proxy)
    assert behind_proxy.link_age_seconds > 0
    await behind_proxy.ping()
    assert behind_proxy.times_back == 0


async def run_in_turn(store: Database, *statements: str) -> None:
    async with store.transaction() as tx:
        for sql in statements:
            await tx.run(sql)


async def test_a_slow_statement_does_not_break_a_link_on_which_other_connections_are_answered(
    a_database: DatabaseFactory,
) -> None:
    """The last statement is silent for longer than `silence_seconds`, but its time limit is not over."""
    store = a_database(
        connect_timeout_seconds=1.0, statement_timeout_ms=4_000, silence_seconds=2.0, pool_size=2
    )
    await store.ping()
    slow = asyncio.create_task(run_in_turn(store, "SELECT pg_sleep(3.5)", "SELECT pg_sleep(3.9)"))
    while not slow.done():
        await store.ping()
        await asyncio.wait([slow], timeout=0.1)
    with pytest.raises(TooSlow, match="took longer than 7 s in all"):
        await slow
    assert store.link_age_seconds > 0
    await store.ping()
    assert store.times_back == 0


async def test_a_transaction_that_got_no_answer_for_long_breaks_the_link(proxy: TcpProxy) -> None:
    store = Database(
        proxy.url, connect_timeout_seconds=0.5, statement_timeout_ms=500, silence_seconds=1.0, pool_size=1
    )
    await store.ping()
    with pytest.raises(Unavailable, match="no answer in time"):
        await ask_after(store, proxy.freeze)
    await proxy.heal()
    await store.ping()
    assert store.times_back == 1
    await store.dispose()


async def test_a_connection_on_which_nothing_was_answered_breaks_the_link(
    proxy: TcpProxy, behind_proxy: Database
) -> None:
    await behind_proxy.ping()
    proxy.freeze()
    with pytest.raises(Unavailable, match="begin"):
        await ask(behind_proxy, "SELECT 1")
    await proxy.heal()
    await behind_proxy.ping()
    assert behind_proxy.times_back == 1


async def read_only_connections(store: Database, count: int) -> None:
    """Leave so many open connections in the pool that take no changes, as to a server that was demoted."""
    async with AsyncExitStack() as open_ones:
        for _ in range(count):
            tx = await open_ones.enter_async_context(store.transaction())
            await tx.run("SET SESSION default_transaction_read_only = on")


async def write(store: Database) -> None:
    async with store.transaction() as tx:
        await tx.run("CREATE TABLE IF NOT EXISTS own.written (number integer)")


async def test_after_a_failover_no_old_connection_is_used_again(store: Database) -> None:
    await read_only_connections(store, 3)
    with pytest.raises(Unavailable, match="25006"):
        await write(store)
    async with AsyncExitStack() as open_ones:
        for _ in range(3):
            tx = await open_ones.enter_async_context(store.transaction())
            row = await tx.row("SELECT current_setting('transaction_read_only')")
            assert row is not None
            assert row[0] == "off"
    await write(store)


async def test_connections_are_renewed_once_when_the_server_is_a_standby(store: Database) -> None:
    pid = "SELECT pg_backend_pid()"
    first = await ask(store, pid)
    assert await ask(store, pid) == first
    store.renew_connections()
    second = await ask(store, pid)
    assert second != first
    assert await ask(store, pid) == second


async def test_the_default_isolation_level_of_the_database_changes_nothing(database: str, host: Host) -> None:
    name = await host.session.fetchval("SELECT current_database()")
    await host.session.execute(
        f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = 'repeatable read'"
    )
    execution_id = await host.add_execution()
    store = Database(database)
    async with store.transaction() as tx:
        row = await tx.row("SELECT current_setting('transaction_isolation') AS level")
        assert row is not None
        assert row.level == "read committed"
        await host.session.execute(f"UPDATE execution SET config = '{{}}' WHERE id = {execution_id}")
        await tx.run("UPDATE execution SET config = '{}' WHERE id = :id", id=execution_id)
    await store.dispose()


async def test_statements_of_dashboard_and_api_end_sooner_and_have_their_own_connections(
    database: str,
) -> None:
    settings = load(None, {"ATTUNE__DATABASE__URL": database}).settings
    found = []
    for store in (database_of(settings), ui_database_of(settings)):
        async with store.transaction() as tx:
            row = await tx.row("SELECT current_setting('statement_timeout'), pg_backend_pid()")
            assert row is not None
            found.append(tuple(row))
        await store.dispose()
    assert [timeout for timeout, _ in found] == ["30s", "5s"]
    assert len({pid for _, pid in found}) == 2
