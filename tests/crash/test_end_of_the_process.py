"""SIGTERM: the intake ends, the batch in hand is finished, the outbox is flushed, the exit code is 0 within grace."""

import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.servers.ports import free_port
from tests.crash.world import SABOTAGE, WAIT_FOR_LOCKS, CrashWorld
from tests.support.eventually import eventually
from tests.support.tcp_proxy import TcpProxy

# The longest grace in these tests and the time that a busy machine takes to close connections that do not answer. A
# process that never ends is what these tests look for.
GRACE_SECONDS = 30 + 25
# With the short times of the other tests a busy machine reaches the end of a lease, a publish or the grace before the
# outbox is flushed, and the process ends with 1.
UNHURRIED: dict[str, Any] = {
    "outbox__lease_seconds": "60",
    "broker__publish_timeout_seconds": "10",
    "grace__shutdown_seconds": "30",
}


async def test_sigterm_finishes_the_batches_in_hand_and_leaves_the_rest_in_the_queue(
    world: CrashWorld,
) -> None:
    dispatches = await world.schedule(100)
    async with world.sidecar(
        batch__size="10", batch__wait_ms="5000", **WAIT_FOR_LOCKS, **UNHURRIED
    ) as sidecar:
        async with world.executions_locked():
            await world.dead_letter(dispatches)
            await eventually(lambda: world.batches_wait(2))
            sidecar.signal(signal.SIGTERM)
            await eventually(lambda: sidecar.events("replica.stop_requested"))
        assert await sidecar.wait() == 0
    assert await world.failed() == 20
    assert len(await world.auditor.completions()) == 20
    assert await world.sql("SELECT count(*) FROM dlq_handler.outbox WHERE confirmed_at IS NULL") == [(0,)]
    await eventually(lambda: has_ready(world, 80))
    async with world.sidecar("successor"):
        await world.settled_once(dispatches)


async def test_sigterm_publishes_the_completion_events_that_are_still_held(world: CrashWorld) -> None:
    async with world.sidecar(start=False, **UNHURRIED) as sidecar:
        await sidecar.start(program=(SABOTAGE, "a_late_relay", "0"))
        dispatches = await world.dead_lettered(50)
        await eventually(lambda: has_failed(world, 50))
        assert await world.auditor.completions() == []
        assert await sidecar.terminate() == 0
    await world.settled_once(dispatches)


@pytest.mark.parametrize(
    ("point", "how"),
    [
        ("a_service_that_returns", "it returned"),
        ("a_service_that_is_cancelled", "it was cancelled"),
        ("a_service_that_raises", "it raised ZeroDivisionError: a bug, on purpose"),
    ],
)
async def test_a_service_that_ends_before_it_was_asked_to_ends_the_process_with_70(
    world: CrashWorld, point: str, how: str
) -> None:
    async with world.sidecar(start=False, batch__size="10", **UNHURRIED) as sidecar:
        await sidecar.start(program=(SABOTAGE, point, "0"))
        dispatches = await world.dead_lettered(50)
        assert await sidecar.wait(GRACE_SECONDS) == 70
        [ended] = sidecar.events("service.ended")
        assert (ended["service"], ended["how"], ended["level"]) == ("DeadLetterIntake", how, "error")
        assert sidecar.events("replica.stop_timed_out") == []
    assert await world.sql("SELECT count(*) FROM dlq_handler.outbox WHERE confirmed_at IS NULL") == [(0,)]
    async with world.sidecar("successor"):
        await world.settled_once(dispatches)


async def test_a_second_signal_ends_it_at_once_and_loses_nothing(world: CrashWorld) -> None:
    dispatches = await world.schedule(50)
    async with (
        world.sidecar(batch__size="10", batch__wait_ms="5000", **WAIT_FOR_LOCKS) as sidecar,
        world.executions_locked(),
    ):
        await world.dead_letter(dispatches)
        await eventually(world.a_batch_waits)
        sidecar.signal(signal.SIGTERM)
        await eventually(lambda: sidecar.events("replica.stop_requested"))
        sidecar.signal(signal.SIGTERM)
        assert await sidecar.wait() == 128 + signal.SIGTERM
    assert await world.failed() == 0
    async with world.sidecar("successor"):
        await world.settled_once(dispatches)


@pytest.mark.parametrize("away", ["database", "broker"])
async def test_sigterm_while_a_server_is_away_ends_within_grace(world: CrashWorld, away: str) -> None:
    async with (
        TcpProxy.to(world.amqp_url) as broker,
        TcpProxy.to(world.database_url) as database,
        world.sidecar(vhost=broker.url, database=database.url, grace__shutdown_seconds="30") as sidecar,
    ):
        dispatches = await world.schedule(50)
        await (database if away == "database" else broker).refuse()
        await world.dead_letter(dispatches)
        await eventually(lambda: sidecar.events("loop.interrupted") or sidecar.events("batch.delayed"))
        sidecar.signal(signal.SIGTERM)
        assert await sidecar.wait(GRACE_SECONDS) == 0
    async with world.sidecar("successor"):
        await world.settled_once(dispatches)


@pytest.mark.parametrize("silent", ["database", "broker"])
async def test_sigterm_with_a_half_open_link_ends_within_grace(world: CrashWorld, silent: str) -> None:
    async with (
        TcpProxy.to(world.amqp_url) as broker,
        TcpProxy.to(world.database_url) as database,
        world.sidecar(vhost=broker.url, database=database.url) as sidecar,
    ):
        await world.settled_once(await world.dead_lettered(20))
        (database if silent == "database" else broker).freeze()
        dispatches = await world.dead_lettered(50)
        sidecar.signal(signal.SIGTERM)
        # 1 when work in hand had to be cut short; the next replica does it again.
        assert await sidecar.wait(GRACE_SECONDS) in {0, 1}
        await (database if silent == "database" else broker).heal()
        async with world.sidecar("successor"):
            await world.settled_once(dispatches, may_repeat_completions=True)


async def test_sigterm_while_it_waits_for_its_servers_ends_it_well(world: CrashWorld) -> None:
    async with world.sidecar(start=False, database=nowhere(world.database_url)) as sidecar:
        await sidecar.start(ready=False)
        await eventually(lambda: sidecar.events("start.delayed"))
        assert await sidecar.terminate() == 0


@pytest.mark.parametrize("absent", ["database", "broker"])
async def test_a_server_that_does_not_come_ends_the_start_with_69(world: CrashWorld, absent: str) -> None:
    async with world.sidecar(
        start=False,
        startup__wait_seconds="1",
        database=nowhere(world.database_url) if absent == "database" else None,
        vhost=nowhere(world.amqp_url) if absent == "broker" else None,
    ) as sidecar:
        await sidecar.start(ready=False)
        assert await sidecar.wait() == 69
        [given_up] = sidecar.events("start.timed_out")
        assert absent in given_up["error"]
        assert given_up["setting"] == "dlq_handler.startup.wait_seconds"


@pytest.mark.parametrize("listener", ["http", "ui"])
async def test_a_port_in_use_ends_the_start_with_78_and_names_it(
    world: CrashWorld, taken_port: int, listener: str
) -> None:
    async with world.sidecar(start=False, **{f"{listener}__port": str(taken_port)}) as sidecar:
        await sidecar.start(ready=False)
        assert await sidecar.wait() == 78
        [refused] = sidecar.events("listener.refused")
        assert (refused["port"], refused["setting"]) == (taken_port, f"dlq_handler.{listener}")
        assert "in use" in refused["error"]
        assert "another replica" in refused["error"]
        assert f"dlq_handler.{listener}.port" in refused["error"]


async def test_an_open_address_without_a_token_ends_the_start_with_78(world: CrashWorld) -> None:
    async with world.sidecar(start=False, ui__host="0.0.0.0") as sidecar:
        await sidecar.start(ready=False)
        assert await sidecar.wait() == 78
        assert "dlq_handler.ui.host is '0.0.0.0' without dlq_handler.ui.tokens" in sidecar.log_text()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def nowhere(url: str) -> str:
    """The same URL with a port on which no server listens."""
    before, _, after = url.rpartition(":")
    return f"{before}:{free_port()}/{after.partition('/')[2]}"


async def has_ready(world: CrashWorld, count: int) -> bool:
    return await world.letters_ready() == count


async def has_failed(world: CrashWorld, count: int) -> bool:
    return await world.failed() == count
