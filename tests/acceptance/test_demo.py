"""`./run demo` tells the truth: exit 0 when every promise was kept, not 0 when one was broken, nothing left running."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil

from dlq_handler.sandbox.servers import PostgreSQL, RabbitMQ

ROOT = Path(__file__).parents[2]

# A sidecar that fails executions and announces nothing, as a stock handler does.
SILENT = """
import dlq_handler.services.outbox_relay as relay
async def run(self, stop): await stop.wait()
relay.OutboxRelay.run = run
"""


async def demo(
    rabbitmq: RabbitMQ, postgres: PostgreSQL, folder: Path, *arguments: str, **environment: str
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "dlq_handler.sandbox.demo",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
        env={
            **os.environ,
            "DLQ_TEST_AMQP_URL": rabbitmq.amqp_url,
            "DLQ_TEST_DATABASE_URL": postgres.url,
            "DLQ_TEST_MANAGEMENT_URL": rabbitmq.management_url,
            "TMPDIR": str(folder),
            **environment,
        },
    )


def left_running(process: asyncio.subprocess.Process, folder: Path) -> list[str]:
    """Whoever still works with the demo's own folder."""
    found = []
    for other in psutil.process_iter(["pid", "cmdline", "environ"]):
        environ = other.info["environ"] or {}
        if environ.get("TMPDIR") == str(folder) and other.pid != process.pid:
            found.append(" ".join(other.info["cmdline"] or []))
    return found


async def test_demo_shows_the_rescue_and_leaves_nothing_behind(
    rabbitmq: RabbitMQ, postgres: PostgreSQL, tmp_path: Path
) -> None:
    # Whoever runs the real one has its settings in the shell: the demo must neither use nor touch that broker.
    elsewhere = {
        "ATTUNE__DLQ_HANDLER__BROKER__URLS": "amqp://127.0.0.1:1/%2f",
        "attune__database__url": "postgresql://x",
    }
    process = await demo(rabbitmq, postgres, tmp_path, **elsewhere)
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    assert b"Worker queue TTL expired" in out
    assert b"BROKEN" not in out
    assert left_running(process, tmp_path) == []
    assert not any(tmp_path.iterdir())  # noqa: ASYNC240 - nothing else runs in this loop now


async def test_demo_fails_when_nobody_announces(
    rabbitmq: RabbitMQ, postgres: PostgreSQL, tmp_path: Path
) -> None:
    sabotage = tmp_path / "sabotage"
    sabotage.mkdir()
    (sabotage / "sitecustomize.py").write_text(SILENT)
    process = await demo(rabbitmq, postgres, tmp_path, "--patience", "8", PYTHONPATH=f"{sabotage}:{ROOT}")
    out, _ = await process.communicate()
    assert process.returncode == 1, out.decode()
    assert b"BROKEN" in out
    assert b"log is kept" in out


async def test_interrupted_demo_leaves_nothing_behind(
    rabbitmq: RabbitMQ, postgres: PostgreSQL, tmp_path: Path
) -> None:
    process = await demo(rabbitmq, postgres, tmp_path)
    assert process.stdout
    async for line in process.stdout:
        if b"dispatched to worker 1" in line:
            process.send_signal(signal.SIGINT)
            break
    out = await process.stdout.read()
    assert await process.wait() == 130, out.decode()
    assert left_running(process, tmp_path) == []
    assert not any(tmp_path.iterdir())  # noqa: ASYNC240 - nothing else runs in this loop now
