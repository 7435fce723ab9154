"""The gate at work: what closes it, what that stops, and that only a look opens it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from dlq_handler.database import migrate
from dlq_handler.diagnosis.ask_replica import gate_fact
from dlq_handler.diagnosis.view import GateFact, Unknown, UnknownCause
from dlq_handler.errors import GateClosed, Unavailable
from dlq_handler.host import database_state_sql
from dlq_handler.host.database_state_sql import DatabaseState
from dlq_handler.rooms import new_metrics
from dlq_handler.safety import gate_service as service
from dlq_handler.safety.gate import GateCause, GateState
from dlq_handler.safety.gate_service import Gate
from dlq_handler.safety.options import GateOptions
from tests.support.builders import NOON

LIMIT = 90.0
OPEN = GateState(causes={})


class World:
    """Our clock, the database and its clock, all in the test's hand."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.link_up_since = -10_000.0
        self.is_in_recovery = False
        self.database_ahead = timedelta()
        self.existing = 0
        self.is_away = False
        self.asked_for: list[int] = []
        self.renewals = 0
        self.metrics = new_metrics()
        self.gate = Gate(
            cast("Any", self),
            GateOptions(unknown_percent=50),
            unavailable_after_seconds=LIMIT,
            metrics=self.metrics,
        )

    @property
    def link_age_seconds(self) -> float:
        return self.seconds - self.link_up_since

    @property
    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.seconds) + self.database_ahead

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield None

    def renew_connections(self) -> None:
        self.renewals += 1

    async def look(self, _: object, ids: list[int]) -> DatabaseState:
        if self.is_away:
            raise Unavailable("database", "away")
        self.asked_for = list(ids)
        return DatabaseState(
            now=self.now,
            is_in_recovery=self.is_in_recovery,
            existing=self.existing,
            schema=migrate.version_of(max(migrate.known_versions()), "0.1.0"),
        )

    async def pass_seconds(self, seconds: float) -> None:
        self.seconds += seconds
        await self.gate.tick()

    async def fail_for_seconds(self, seconds: float) -> None:
        self.is_away = True
        with pytest.raises(Unavailable):
            await self.pass_seconds(seconds)

    def closed(self) -> set[str]:
        return {cause for cause, value in self.shown().items() if value == "1.0"}

    def shown(self) -> dict[str, str]:
        return {
            sample.labels["cause"]: str(sample.value)
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "dlq_handler_gate_closed"
        }


@pytest.fixture
def unlooked(monkeypatch: pytest.MonkeyPatch) -> World:
    it = World()
    monkeypatch.setattr(service, "monotonic_seconds", lambda: it.seconds)
    monkeypatch.setattr(database_state_sql, "read_database_state", it.look)
    return it


@pytest.fixture
async def world(unlooked: World) -> World:
    await unlooked.gate.tick()
    return unlooked


def unknown(*ids: int) -> list[tuple[int, bool]]:
    return [(execution_id, False) for execution_id in ids]


async def test_open_gate_lets_everything_through(world: World) -> None:
    world.gate.check()
    world.gate.consider([])
    assert world.gate.knows_workers
    assert (world.closed(), world.gate.state) == (set(), OPEN)


async def test_standby_stops_everything_and_heartbeats_are_believed_late_after_it(world: World) -> None:
    world.is_in_recovery = True
    await world.pass_seconds(2)
    with pytest.raises(GateClosed, match="standby"):
        world.gate.check()
    with pytest.raises(GateClosed, match="standby"):
        world.gate.consider([])
    assert world.closed() == {"recovery"}
    assert "standby" in world.gate.state.causes[GateCause.RECOVERY]
    assert world.renewals == 1, "connections that a failover left open must not be used again"
    world.is_in_recovery = False
    await world.pass_seconds(2)
    assert world.renewals == 1
    world.gate.check()
    assert world.gate.watched_seconds == 2
    assert world.closed() == {"young_link"}, "the reason must be visible while heartbeats are not used"
    assert "connected" in world.gate.state.causes[GateCause.YOUNG_LINK]
    await world.pass_seconds(LIMIT - 3)
    assert world.closed() == {"young_link"}
    await world.pass_seconds(1)
    assert world.gate.knows_workers
    assert (world.closed(), world.gate.state) == (set(), OPEN)


@pytest.mark.parametrize("jump", [timedelta(hours=1), timedelta(hours=-1)])
async def test_clock_that_jumps_makes_heartbeats_wait_and_nothing_else(world: World, jump: timedelta) -> None:
    await world.pass_seconds(2)
    world.database_ahead = jump
    await world.pass_seconds(2)
    world.gate.check()
    assert world.gate.watched_seconds == 0
    assert world.closed() == {"clock_jump"}
    assert "jumped" in world.gate.state.causes[GateCause.CLOCK_JUMP]
    await world.pass_seconds(LIMIT - 1)
    assert world.closed() == {"clock_jump"}
    await world.pass_seconds(1)
    assert world.gate.knows_workers
    assert (world.closed(), world.gate.state) == (set(), OPEN)


async def test_the_first_reader_of_the_clock_sees_the_jump(world: World) -> None:
    """Between two looks of the gate a batch would otherwise fail what every worker is running."""
    world.gate.see_clock(world.now + timedelta(hours=1), asked_at=world.seconds, answered_at=world.seconds)
    assert not world.gate.knows_workers


async def test_ages_count_from_the_first_look_after_a_jump_ahead(world: World) -> None:
    assert world.gate.steady_since is None
    world.database_ahead = timedelta(hours=3)
    await world.pass_seconds(2)
    assert world.gate.steady_since == (jumped_at := world.now)
    await world.pass_seconds(10 * LIMIT)
    assert world.gate.steady_since == jumped_at, "rows of before the jump never become young again"


async def test_clock_that_is_set_back_leaves_no_moment_ahead_to_count_from(world: World) -> None:
    world.database_ahead = timedelta(hours=-3)
    await world.pass_seconds(2)
    assert world.gate.steady_since is None
    world.database_ahead = timedelta()
    await world.pass_seconds(2)
    world.database_ahead = timedelta(hours=-3)
    await world.pass_seconds(2)
    assert world.gate.steady_since == world.now


async def test_young_link_makes_heartbeats_wait(world: World) -> None:
    world.link_up_since = world.seconds
    await world.pass_seconds(5)
    world.gate.check()
    assert world.gate.watched_seconds == 5
    assert world.closed() == {"young_link"}
    await world.pass_seconds(LIMIT)
    assert world.closed() == set()


async def test_letters_for_unknown_executions_close_it_until_half_of_them_exist(world: World) -> None:
    with pytest.raises(GateClosed, match="right database"):
        world.gate.consider(unknown(*range(30)))
    with pytest.raises(GateClosed):
        world.gate.check()
    assert world.closed() == {"unknown_executions"}
    world.existing = 14
    await world.pass_seconds(2)
    assert world.asked_for == list(range(30))
    with pytest.raises(GateClosed):
        world.gate.check()
    world.existing = 15
    await world.pass_seconds(2)
    world.gate.check()
    assert (world.closed(), world.gate.state) == (set(), OPEN)
    await world.pass_seconds(2)
    assert world.asked_for == []


async def test_witnesses_of_earlier_batches_count_and_those_before_a_closing_do_not(world: World) -> None:
    for number in range(19):
        world.gate.consider(unknown(number))
    with pytest.raises(GateClosed):
        world.gate.consider(unknown(19))
    world.existing = 20
    await world.pass_seconds(2)
    world.gate.consider(unknown(*range(100, 119)))


async def test_each_closing_and_opening_is_logged_once(world: World) -> None:
    world.is_in_recovery = True
    with capture_logs() as logged:
        for _ in range(3):
            await world.pass_seconds(2)
        world.is_in_recovery = False
        for _ in range(3):
            await world.pass_seconds(2)
    assert [(line["event"], line["cause"], line["log_level"]) for line in logged] == [
        ("gate.closed", "recovery", "warning"),
        ("gate.opened", "recovery", "info"),
        ("gate.closed", "young_link", "info"),
    ]


async def test_the_view_has_the_causes_that_closed_it(world: World) -> None:
    world.is_in_recovery = True
    await world.pass_seconds(1)

    seen = gate_fact(await world.gate.read_state())

    assert isinstance(seen, GateFact)
    assert GateCause.RECOVERY in seen.causes
    assert "standby" in (seen.explanation or "")


async def test_before_the_first_read_no_cause_counts_as_open(unlooked: World) -> None:
    unlooked.is_away = True

    assert gate_fact(await unlooked.gate.read_state()) == Unknown(
        "this replica has not read the database yet", UnknownCause.REPLICA_UNSURE
    )
    assert unlooked.shown() == dict.fromkeys(GateCause, "nan")

    unlooked.is_away = False
    assert gate_fact(await unlooked.gate.read_state()) == GateFact(causes=())
    assert unlooked.shown() == dict.fromkeys(GateCause, "0.0")


async def test_an_old_read_makes_the_state_unknown(world: World) -> None:
    await world.fail_for_seconds(10)
    assert gate_fact(await world.gate.read_state()) == GateFact(causes=()), "some looks may fail"

    await world.fail_for_seconds(1)
    assert isinstance(seen := gate_fact(await world.gate.read_state()), Unknown)
    assert "11 s ago" in seen.explanation
    assert world.shown() == dict.fromkeys(GateCause, "nan")

    world.is_away = False
    await world.pass_seconds(2)
    assert world.shown() == dict.fromkeys(GateCause, "0.0")


async def test_a_scrape_knows_how_old_the_look_is_while_the_next_one_hangs(world: World) -> None:
    """No tick comes to its end then, so the state is unknown."""
    world.seconds += 10
    assert world.shown() == dict.fromkeys(GateCause, "0.0")
    world.seconds += 0.1
    assert world.shown() == dict.fromkeys(GateCause, "nan")


async def test_a_cause_that_stops_everything_stays_until_the_next_read(world: World) -> None:
    world.is_in_recovery = True
    await world.pass_seconds(2)
    await world.fail_for_seconds(20)

    assert isinstance(seen := gate_fact(await world.gate.read_state()), GateFact)
    assert GateCause.RECOVERY in seen.causes
    assert world.shown() == dict.fromkeys(GateCause, "nan") | {"recovery": "1.0"}
    with pytest.raises(GateClosed, match="standby"):
        world.gate.check()
