"""A network that swallows everything for a minute: ready again soon after it is back, and nothing is lost.

Scaled by default. `DLQ_TEST_SILENCE_SECONDS=60` runs it with the product's default times and prints how long it took:
`DLQ_TEST_SILENCE_SECONDS=60 .venv/bin/python -m pytest -s tests/crash/test_silent_servers.py`.
"""

import asyncio
import os
import platform
import time
from typing import Any

import pytest

from dlq_handler.settings.model import DlqHandler
from tests.crash.world import QUICK, SABOTAGE, CrashWorld, is_unready
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess
from tests.support.tcp_proxy import TcpProxy

FULL_SECONDS = float(os.environ.get("DLQ_TEST_SILENCE_SECONDS", "0"))
BACK_WITHIN_SECONDS = 30

pytestmark = pytest.mark.timeout(180 + FULL_SECONDS)

SCALED: dict[str, Any] = {
    "broker__heartbeat_seconds": "1",
    "broker__connect_timeout_seconds": "1",
    "database__connect_timeout_seconds": "1",
    "database__statement_timeout_ms": "1000",
    "database__lock_timeout_ms": "500",
    "pause__database_outage_seconds": "1",
}


@pytest.mark.parametrize("silent", ["broker", "database", "both"])
async def test_the_intake_outlives_a_silent_server(world: CrashWorld, silent: str) -> None:
    settings: dict[str, Any] = default_times() if FULL_SECONDS else SCALED
    async with (
        TcpProxy.to(world.amqp_url) as broker,
        TcpProxy.to(world.database_url) as database,
        world.sidecar(vhost=broker.url, database=database.url, **settings) as sidecar,
    ):
        proxies = {"broker": [broker], "database": [database], "both": [broker, database]}[silent]
        await world.settled_once(await world.dead_lettered(20))
        for proxy in proxies:
            proxy.freeze()
        before = await world.dead_lettered(100)
        if FULL_SECONDS:
            await asyncio.sleep(FULL_SECONDS)
        else:
            await is_reconnecting_in_vain(sidecar, proxies)
        await eventually(lambda: is_unready(sidecar))
        assert await sidecar.healthz() == (200, {"status": "alive"}), (
            "a server that is away is no reason to restart"
        )
        healed_at = time.monotonic()
        for proxy in proxies:
            await proxy.heal()
        await sidecar.wait_ready()
        ready_seconds = time.monotonic() - healed_at
        after = await world.dead_lettered(20)
        await world.settled_once([*before, *after], may_repeat_completions=True)
        assert sidecar.events("loop.crashed") == []
        if FULL_SECONDS:
            python = platform.python_version()
            print(
                f"\nPython {python}, {silent} silent for {FULL_SECONDS:g} s: ready after {ready_seconds:.1f} s"
            )
            assert ready_seconds < BACK_WITHIN_SECONDS


async def test_a_server_that_is_away_for_long_never_fails_healthz(world: CrashWorld) -> None:
    """Each replica loses one of the two servers: with both away no loop would come to the second one that it calls."""
    async with (
        TcpProxy.to(world.amqp_url) as broker,
        TcpProxy.to(world.database_url) as database,
        world.sidecar("without-broker", vhost=broker.url, start=False, **SCALED) as leader,
        world.sidecar("without-database", database=database.url, start=False, **SCALED) as other,
    ):
        for sidecar in (leader, other):
            await sidecar.start(program=(SABOTAGE, "a_short_patience", "0"))
        for proxy in (broker, database):
            proxy.freeze()
        # Longer than the interval of a loop, a call in vain, and the time that a loop may stand still here, together.
        both = [answers_of_healthz(sidecar, for_seconds=24) for sidecar in (leader, other)]
        for sidecar, answers in zip((leader, other), await asyncio.gather(*both), strict=True):
            assert [answer for answer in answers if answer != (200, {"status": "alive"})] == []
            assert sidecar.events("loop.stalled") == []


async def test_a_loop_that_hangs_fails_healthz_which_names_it(world: CrashWorld) -> None:
    async with world.sidecar(start=False) as sidecar:
        await sidecar.start(program=(SABOTAGE, "a_loop_that_hangs", "0"))

        async def is_unhealthy() -> bool:
            status, answer = await sidecar.healthz()
            assert (status, [one["loop"] for one in answer.get("loops", ())]) == (503, ["state-reader"])
            return True

        await eventually(is_unhealthy, timeout=60)
        [stalled] = await eventually(lambda: sidecar.events("loop.stalled"))
        assert (stalled["loop"], stalled["level"]) == ("state-reader", "error")
        code, said, _ = await sidecar.cli("health")
        assert code == 1
        assert "503" in said
        assert '"loop":"state-reader"' in said


async def answers_of_healthz(
    sidecar: SidecarProcess, *, for_seconds: float
) -> list[tuple[int, dict[str, Any]]]:
    answers, end = [], time.monotonic() + for_seconds
    while time.monotonic() < end:
        answers.append(await sidecar.healthz())
        await asyncio.sleep(0.2)
    return answers


async def is_reconnecting_in_vain(sidecar: SidecarProcess, proxies: list[TcpProxy]) -> None:
    """The intake is closed, and every loop that needs the server has met the silence more than once."""
    await eventually(lambda: sidecar.events("intake.closed"))
    before = [proxy.accepted for proxy in proxies]

    def has_tried() -> bool:
        return all(proxy.accepted >= count + 8 for proxy, count in zip(proxies, before, strict=True))

    await eventually(has_tried, timeout=60)


def default_times() -> dict[str, str]:
    """Takes back what tests shorten."""
    own = DlqHandler()
    sections = {
        key: key.partition("__")
        for key in (*QUICK, "worker__watch_interval_seconds", "outbox__poll_interval_seconds")
    }
    defaults = {key: getattr(getattr(own, section), name) for key, (section, _, name) in sections.items()}
    return {key: str(value) for key, value in defaults.items()} | {"canary__enabled": "false"}
