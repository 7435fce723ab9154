"""`./run demo`: every promise is kept in an unshortened run, and nothing is left behind, however it ends."""

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.demo import demo, left_behind, left_running


@pytest.mark.timeout(400)
async def test_demo_keeps_every_promise_and_leaves_nothing_behind(
    tmp_path: Path, print_line: Callable[[str], None]
) -> None:
    process = await demo(tmp_path)
    out, _ = await process.communicate()
    output = out.decode()
    assert process.returncode == 0, output
    assert [f"Act {number}." in output for number in range(1, 7)] == [True] * 6
    assert "\x1b" not in output
    for promise in (
        "dispatched",
        "published",
        "was over",
        r"dispatched to a retired worker came to an end +[1-9]",
        "queues of a retired worker",
        "in the line",
        "in any queue",
        "stock Attune",
    ):
        assert re.search(rf"^✓ .*{promise}", output, re.MULTILINE), output
    figures = re.findall(r"first rescued execution .*|the story took .*", output)
    assert len(figures) == 2
    print_line(f"demo: {'; '.join(figures)}")
    assert re.search(
        r"[1-9]\d* dead letters decided, [1-9]\d* delivered and undecided: dlq-handler is killed", output
    ), output
    assert re.search(r"its dashboard, .*: http://127\.0\.0\.1:\d+$", output, re.MULTILINE)
    assert left_running(tmp_path) == []
    assert left_behind(tmp_path) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("way", "moment"),
    [
        ("SIGINT", b"kill -9: worker-shell"),
        ("SIGTERM", b"starting RabbitMQ"),
        ("closed pipe", b"starting RabbitMQ"),
    ],
)
async def test_interrupted_demo_leaves_nothing_behind(tmp_path: Path, way: str, moment: bytes) -> None:
    process = await demo(tmp_path)
    assert process.stdout
    async for line in process.stdout:
        if moment in line:
            break
    if way == "closed pipe":
        process.stdout._transport.close()  # type: ignore[attr-defined]  # there is no other way to stop reading
        number = signal.SIGPIPE
    else:
        number = signal.Signals[way]
        process.send_signal(number)
        await process.stdout.read()
    assert await process.wait() == 128 + number
    assert left_running(tmp_path) == []
    assert left_behind(tmp_path) == []
