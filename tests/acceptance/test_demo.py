"""`./run demo` tells the truth: exit 0 when every promise was kept, not 0 when one was broken, nothing left running."""

import asyncio
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.support import sabotage

ROOT = Path(__file__).parents[2]

# Whoever runs the real one has its settings in the shell: the demo must neither use nor touch that broker.
ELSEWHERE = {
    "ATTUNE__DLQ_HANDLER__BROKER__URLS": "amqp://127.0.0.1:1/%2f",
    "attune__database__url": "postgresql://x",
}


async def demo(folder: Path, *arguments: str) -> asyncio.subprocess.Process:
    """As a process; `folder` marks all that it starts, and is where it may leave something."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "dlq_handler.sandbox.demo",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
        env={**os.environ, **ELSEWHERE, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
    )


def left_running(folder: Path) -> list[str]:
    """Whoever still works with the demo's own folder."""
    return [
        " ".join(other.info["cmdline"] or [])
        for other in psutil.process_iter(["cmdline", "environ"])
        if (other.info["environ"] or {}).get("TMPDIR") == str(folder)
    ]


def left_behind(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*")]


@pytest.mark.timeout(400)
async def test_demo_keeps_every_promise_and_leaves_nothing_behind(tmp_path: Path) -> None:
    process = await demo(tmp_path)
    out, _ = await process.communicate()
    told = out.decode()
    assert process.returncode == 0, told
    assert [f"Act {number}." in told for number in range(1, 6)] == [True] * 5
    assert "\x1b" not in told
    for promise in ("dispatched", "announced", "was over", "in the line", "in any queue", "stock Attune"):
        assert re.search(rf"^✓ .*{promise}", told, re.MULTILINE), told
    assert "first rescued execution" in told
    assert "letters in its hands: killed at work" in told
    assert left_running(tmp_path) == []
    assert left_behind(tmp_path) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("point", "seen"),
    [(sabotage.says_nothing, "not announced: "), (sabotage.says_it_twice, "announced more than once: ")],
    ids=["no-publish", "double-publish"],
)
async def test_demo_fails_when_the_sidecar_breaks_a_promise(tmp_path: Path, point: object, seen: str) -> None:
    name = getattr(point, "__name__", "")
    command = shlex.join([sys.executable, str(ROOT / "tests/support/sabotage.py"), name, "1", "run"])
    process = await demo(tmp_path, "--patience", "25", "--sidecar", command)
    out, _ = await process.communicate()
    told = out.decode()
    assert process.returncode == 1, told
    assert seen in told
    log = re.search(r"BROKEN: each end was announced, exactly once: .*; read (\S+sidecar\.log)", told)
    assert log, told
    assert "intake.opened" in Path(log[1]).read_text()  # noqa: ASYNC240 - nothing else runs in this loop now
    assert left_running(tmp_path) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("way", "moment"),
    [
        ("SIGINT", b"kill -9: worker-shell"),
        ("SIGTERM", b"starting RabbitMQ"),
        ("SIGHUP", b"starting RabbitMQ"),
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
