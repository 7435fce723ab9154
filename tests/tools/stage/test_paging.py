"""All workers die: one page fires, and resolves when they are back."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sandbox.demo.attune_client import attune_client
from sandbox.stage.parts import WORKERS
from sandbox.stage.stage import Stage
from sandbox.times import SCALED
from tests.support.eventually import eventually
from tests.support.monitoring import Receiver, alertmanager, prometheus, shortened, value_of

EXECUTIONS = 12
ALIVE = 'max(dlq_handler_workers{availability="available"})'


def test_only_durations_are_shortened() -> None:
    text = (
        "expr: rate(a_total[5m]) > 300 and max_over_time(max(a)[10m:]) > 2\n"
        'for: 2m\nkeep_firing_for: 4m\ngroup_wait: 15s\nsummary: "for 5 minutes: 5m"'
    )
    assert shortened(text) == (
        "expr: rate(a_total[15000ms]) > 300 and max_over_time(max(a)[30000ms:]) > 2\n"
        'for: 6000ms\nkeep_firing_for: 12000ms\ngroup_wait: 750ms\nsummary: "for 5 minutes: 5m"'
    )


@pytest.mark.timeout(400)
async def test_the_death_of_all_workers_pages_once_and_their_return_resolves_it(tmp_path: Path) -> None:
    receiver = Receiver()
    async with Stage.open(tmp_path / "stage", print_line=lambda _: None, times=SCALED) as stage:
        await stage.start("api", "executor", *WORKERS)
        await stage.start("sidecar")
        async with (
            alertmanager(tmp_path, receiver) as paging,
            prometheus(
                tmp_path,
                {
                    "dlq-handler": urlsplit(stage.ops_url).netloc,
                    "rabbitmq": stage.broker.metrics_address,
                    "alertmanager": paging,
                },
            ) as monitoring,
        ):

            async def all_alive() -> bool:
                return await value_of(monitoring, ALIVE) == len(WORKERS)

            async def letters_arrived() -> bool:
                return bool(await value_of(monitoring, "sum(dlq_handler_dead_letters_total)"))

            await eventually(all_alive, timeout=90, every=0.5)
            await stage.kill(*WORKERS)
            # Before the scheduler knows that no worker is left.
            async with attune_client(stage.api_url, stage.api_token) as attune:
                await attune.execute("core.echo", EXECUTIONS)
            await eventually(lambda: receiver.notifications("page"), timeout=90, every=0.2)
            await eventually(letters_arrived, timeout=60, every=0.5)
            await stage.start(*WORKERS)
            await eventually(lambda: is_resolved(receiver), timeout=90, every=0.2)
            await eventually(all_alive, timeout=90, every=0.5)
    assert receiver.notifications("page") == [
        ("firing", ["DlqHandlerNoActiveWorkers"]),
        ("resolved", ["DlqHandlerNoActiveWorkers"]),
    ]
    annotations = receiver.heard["page"][0]["alerts"][0]["annotations"]
    assert annotations["dashboard_url"] == "http://localhost:8085/workers"
    assert annotations["runbook_url"].endswith("/runbook.md#no-workers")


def is_resolved(receiver: Receiver) -> bool:
    return receiver.notifications("page")[-1][0] == "resolved"
