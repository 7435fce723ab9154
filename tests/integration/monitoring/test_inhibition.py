"""A real Alertmanager with the example's file notifies of the cause, not of its consequences."""

from pathlib import Path

import httpx
import pytest

from tests.support.eventually import eventually
from tests.support.monitoring import Receiver, alertmanager, asked
from tests.support.ops_files import alerts

HERE, ELSEWHERE = "https://dlq.example.com", "https://another.example.com"
SEVERITY = {alert.name: alert.severity for alert in alerts()}


@pytest.mark.parametrize(
    ("cause", "consequences"),
    [
        ("DlqHandlerAbsent", ["DlqHandlerDown", "RabbitmqDeadLettersUnconsumed", "RabbitmqDeadLettersLost"]),
        # Apart from the broker's, which it would silence elsewhere too.
        ("DlqHandlerAbsent", ["DlqHandlerNoneReady"]),
        ("DlqHandlerBrakeTripped", ["DlqHandlerQueueDeep", "DlqHandlerOldestLetter"]),
        ("DlqHandlerGateClosed", ["DlqHandlerNoneReady"]),
        ("DlqHandlerNoneReady", ["DlqHandlerNotReady", "DlqHandlerOutboxStuck", "DlqHandlerCanaryLost"]),
        (
            "DlqHandlerNoActiveWorkers",
            ["DlqHandlerLetters", "DlqHandlerLetterRate", "DlqHandlerQueueUnattended"],
        ),
        ("DlqHandlerWorkersNotConsuming", ["DlqHandlerQueueUnattended"]),
        ("DlqHandlerExecutorNotConsuming", ["DlqHandlerSlotsLeaked"]),
        ("DlqHandlerQueueDeep", ["RabbitmqDeadLettersWaiting"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_cause_silences_what_follows_from_it_and_nothing_of_another_installation(
    cause: str, consequences: list[str], tmp_path: Path
) -> None:
    async with alertmanager(tmp_path, Receiver()) as address:
        here = [an_alert(name, HERE) for name in (cause, *consequences)]
        elsewhere = [an_alert(name, ELSEWHERE) for name in consequences]
        async with httpx.AsyncClient(verify=False, trust_env=False) as client:
            posted = await client.post(f"http://{address}/api/v2/alerts", json=[*here, *elsewhere])
            posted.raise_for_status()

        async def is_so() -> bool:
            assert await states(address, HERE) == {
                cause: "active",
                **dict.fromkeys(consequences, "suppressed"),
            }
            assert await states(address, ELSEWHERE) == dict.fromkeys(consequences, "active")
            return True

        await eventually(is_so, timeout=30, every=0.1)


def an_alert(name: str, url: str) -> dict[str, dict[str, str]]:
    return {"labels": {"alertname": name, "severity": SEVERITY[name], "dlq_handler_url": url}}


async def states(address: str, url: str) -> dict[str, str]:
    answer = await asked(address, "/api/v2/alerts", filter=f'dlq_handler_url="{url}"')
    return {one["labels"]["alertname"]: one["status"]["state"] for one in answer.json()}
