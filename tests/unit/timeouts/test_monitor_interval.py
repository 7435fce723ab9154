"""How long work on an unavailable worker goes on as `running`, with the monitor's own interval."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.worker import Worker
from dlq_handler.settings import Settings
from dlq_handler.timeout_services import timeout_services
from dlq_handler.timeouts import monitor
from dlq_handler.timeouts.case import StaleCase, WorkerView
from dlq_handler.timeouts.decide import decide_stale
from dlq_handler.timeouts.decision import End
from dlq_handler.timeouts.monitor import TimeoutMonitor
from dlq_handler.workers.worker_observation import WorkerObservation, observe_again
from tests.support.builders import NOON, an_execution


def settings_with(**given: float) -> Settings:
    # Attune's own interval, at its largest: it must not slow this monitor down.
    return Settings.model_validate(
        {"executor": {"timeout_check_interval": 3600}, "dlq_handler": {"monitor": given}}
    )


@pytest.mark.parametrize("by_attune", [True, False])
@pytest.mark.parametrize("is_enabled", [True, False])
def test_attunes_switch_for_its_own_monitor_does_not_switch_this_one(
    by_attune: bool, is_enabled: bool
) -> None:
    settings = Settings.model_validate(
        {
            "executor": {"enable_timeout_monitor": by_attune},
            "dlq_handler": {"monitor": {"enabled": is_enabled}},
        }
    )
    assert any(isinstance(one, TimeoutMonitor) for one in services_of(settings)) is is_enabled


def services_of(settings: Settings) -> Sequence[object]:
    names = ("writer", "leadership", "gate", "worker_queues", "publisher", "consumer", "metrics")
    parts: dict[str, Any] = {name: MagicMock() for name in names}
    return timeout_services(settings, MagicMock(), MagicMock(), MagicMock(), **parts)


async def test_the_monitor_scans_at_its_own_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    intervals: list[float] = []

    async def every(seconds: float, *_: object, **__: object) -> None:
        intervals.append(seconds)

    monkeypatch.setattr(monitor, "every", every)
    [scans] = [
        one for one in services_of(settings_with(interval_seconds=7)) if isinstance(one, TimeoutMonitor)
    ]
    await scans.run(asyncio.Event())
    assert intervals == [7]


def seconds_until_abandoned(settings: Settings, first_scan_seconds: float) -> float:
    """Since the last heartbeat of a worker, with a scan at `first_scan_seconds` and then one each interval."""
    limits = settings.stale_limits
    look: WorkerObservation | None = None
    age = first_scan_seconds
    while age < 100_000:
        now = NOON + timedelta(seconds=age)
        row = Worker(id=7, heartbeat_age_seconds=age, last_heartbeat=NOON)
        look = observe_again(
            7,
            look,
            worker=row,
            queue=None,
            is_queue_known=False,
            now=now,
            watched_seconds=age + 3600,
            availability=limits.availability,
            confirm_after_seconds=limits.monitor.confirm_after_seconds,
        )
        case = StaleCase(
            execution=an_execution(status=ExecutionStatus.RUNNING, updated=NOON, worker_id=7),
            worker=WorkerView(row=row, check=look),
            now=now,
            watched_seconds=age + 3600,
            limits=limits,
        )
        if isinstance(decide_stale(case), End):
            return age
        age += limits.monitor.interval_seconds
    pytest.fail("it is never abandoned")


@given(
    interval=st.floats(1, 600),
    confirm_after=st.floats(1, 600),
    first_scan=st.floats(0, 1),
)
def test_work_on_an_unavailable_worker_ends_within_both_limits_and_two_intervals(
    interval: float, confirm_after: float, first_scan: float
) -> None:
    settings = settings_with(interval_seconds=interval, confirm_after_seconds=confirm_after)
    bound = settings.worker_unavailable_after_seconds + confirm_after + 2 * interval
    assert seconds_until_abandoned(settings, first_scan * interval) <= bound + 0.001


@pytest.mark.parametrize("first_scan", [0, 5, 9])
def test_with_the_defaults_it_ends_within_140_seconds(first_scan: int) -> None:
    """As docs/explanation/stock-attune.md says, whatever the interval of Attune's own monitor."""
    assert 120 <= seconds_until_abandoned(settings_with(), first_scan) <= 140
