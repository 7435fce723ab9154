"""The demo as a process, and what it left."""

import asyncio
import os
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]

# The README's own command: it ends in the demo itself, so signals reach that.
DEMO = [str(ROOT / "run"), "demo"]

# Settings of a real installation in the shell: the demo must neither use nor touch that broker.
ELSEWHERE = {
    "ATTUNE__DLQ_HANDLER__BROKER__URLS": "amqp://127.0.0.1:1/%2f",
    "attune__database__url": "postgresql://x",
}


async def demo(folder: Path, *arguments: str) -> asyncio.subprocess.Process:
    """As a process; `folder` marks all that it starts, and is where it may leave something."""
    return await asyncio.create_subprocess_exec(
        *DEMO,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
        env={**os.environ, **ELSEWHERE, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
    )


def left_running(folder: Path) -> list[str]:
    """Processes that still use the demo's own folder."""
    return [
        " ".join(other.info["cmdline"] or [])
        for other in psutil.process_iter(["cmdline", "environ"])
        if (other.info["environ"] or {}).get("TMPDIR") == str(folder)
    ]


def left_behind(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*")]
