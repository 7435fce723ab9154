"""The runner gives every step its turn, and the composition gives every room's step its place."""

import asyncio
from typing import cast

import pytest
from structlog.testing import capture_logs

from dlq_handler.database.engine import Database
from dlq_handler.database.expiry_sql import MayGoOn
from dlq_handler.errors import Contended
from dlq_handler.history.options import RetentionPolicy
from dlq_handler.history.retention import RetentionRunner, RetentionStep
from dlq_handler.rooms import RETENTION_STEPS

POLICY = RetentionPolicy(resolved_seconds=1, unresolved_seconds=2, interval_seconds=300)


class Steps:
    """Steps that delete nothing and remember that they ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.stop = asyncio.Event()

    def step(
        self, name: str, result: int | Exception, *, is_logged: bool = False, stops: bool = False
    ) -> RetentionStep:
        async def delete(_: Database, policy: RetentionPolicy, may_go_on: MayGoOn) -> int:
            assert policy is POLICY
            assert may_go_on()
            self.ran.append(name)
            if stops:
                self.stop.set()
                assert not may_go_on()
            if isinstance(result, Exception):
                raise result
            return result

        return RetentionStep(name=name, delete=delete, is_logged=is_logged)


def a_runner(*steps: RetentionStep) -> RetentionRunner:
    # The runner only passes it on to the steps.
    return RetentionRunner(cast("Database", None), POLICY, steps)


def test_the_log_event_has_the_documented_fields() -> None:
    logged = [step.name for step in RETENTION_STEPS if step.is_logged]
    assert logged == ["resolved", "unresolved", "completion_events", "decisions"]


async def test_a_step_that_fails_keeps_no_other_from_its_turn() -> None:
    steps = Steps()
    runner = a_runner(
        steps.step("first", 0, is_logged=True),
        steps.step("broken", Contended("not this one"), is_logged=True),
        steps.step("silent", 5),
        steps.step("last", 3, is_logged=True),
    )
    with capture_logs() as logs, pytest.raises(Contended, match="not this one"):
        await runner.tick()
    assert steps.ran == ["first", "broken", "silent", "last"]
    [event] = [one for one in logs if one["event"] == "records.deleted"]
    assert {name: event[name] for name in event if name not in ("event", "log_level")} == {
        "first": 0,
        "broken": 0,
        "last": 3,
    }


async def test_no_step_begins_after_a_stop() -> None:
    steps = Steps()
    runner = a_runner(steps.step("first", 1, stops=True), steps.step("second", 1))
    async with asyncio.timeout(30):
        await runner.run(steps.stop)
    assert steps.ran == ["first"]
