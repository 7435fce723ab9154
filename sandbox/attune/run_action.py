"""Really run an action: its script, as a process of its own, which ends with the worker or at its timeout."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from sandbox.attune.actions import ACTIONS
from sandbox.attune.work import ActionFailed, RunAction

_END_WITH_PARENT = str(Path(__file__).with_name("end_with_parent.py"))


def subprocess_runner(runtime: str, *, timeout_seconds: float) -> RunAction:
    """Raises ActionFailed with the result for whatever did not exit with 0 in time."""
    interpreter, language = _interpreter_of(runtime)

    async def run(payload: dict[str, Any]) -> object:
        action = ACTIONS.get(payload["action_ref"])
        if action is None:
            raise ActionFailed({"error": f"this worker has no action {payload['action_ref']}"})
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", _END_WITH_PARENT, str(os.getpid())),
            *(*interpreter, action.scripts[language]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # a signal for the worker, as by Ctrl-C, is not one for its actions
        )
        try:
            async with asyncio.timeout(timeout_seconds):
                out, err = await process.communicate(json.dumps(payload["config"] or {}).encode())
        except TimeoutError:
            raise ActionFailed({"error": f"timed out after {timeout_seconds:g} seconds"}) from None
        finally:
            if process.returncode is None:
                await _end(process)
        result = {
            "exit_code": process.returncode,
            "stdout": out.decode(errors="replace"),
            "stderr": err.decode(errors="replace"),
        }
        if process.returncode:
            raise ActionFailed({"error": f"exit code {process.returncode}", **result})
        return result

    return run


def _interpreter_of(runtime: str) -> tuple[tuple[str, ...], str]:
    """The command that takes a script as its last argument, and the language of that script."""
    if runtime == "shell":
        return ("sh", "-c"), "shell"
    if runtime == "node" and (node := shutil.which("node")):
        return (node, "-e"), "node"
    return (sys.executable, "-I", "-c"), "python"


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
