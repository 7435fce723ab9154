"""The sandbox's actions, really run in each runtime."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from sandbox.attune import run_action
from sandbox.attune.actions import RUNTIMES
from sandbox.attune.run_action import subprocess_runner
from sandbox.attune.work import ActionFailed
from tests.support.eventually import eventually

END_WITH_PARENT = str(Path(run_action.__file__).with_name("end_with_parent.py"))


def a_payload(action_ref: str, **parameters: Any) -> dict[str, Any]:
    return {"action_ref": action_ref, "config": parameters or None}


@pytest.mark.parametrize("runtime", RUNTIMES)
async def test_every_runtime_runs_every_action(runtime: str) -> None:
    run = subprocess_runner(runtime, timeout_seconds=30)
    echoed = await run(a_payload("core.echo", message="gruß"))
    assert json.loads(echoed["stdout"]) == {"message": "gruß"}  # type: ignore[index]  # results are anything
    slept = await run(a_payload("core.slow", seconds=0.01))
    assert slept == {"exit_code": 0, "stdout": "slept 0.01 s\n", "stderr": ""}
    with pytest.raises(ActionFailed) as failed:
        await run(a_payload("core.fail"))
    assert failed.value.result["exit_code"] == 3
    assert "always fails" in failed.value.result["stderr"]


async def test_an_action_without_parameters_gets_an_empty_object() -> None:
    echoed = await subprocess_runner("shell", timeout_seconds=30)(a_payload("core.echo"))
    assert echoed == {"exit_code": 0, "stdout": "{}", "stderr": ""}


async def test_an_action_that_takes_too_long_is_ended_and_failed() -> None:
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(ActionFailed, match=r"timed out after 0\.3 seconds"):
        await subprocess_runner("shell", timeout_seconds=0.3)(a_payload("core.sleep", seconds=600))
    assert set(psutil.Process().children(recursive=True)) <= before


async def test_an_unknown_action_fails() -> None:
    with pytest.raises(ActionFailed, match=r"no action core\.unknown"):
        await subprocess_runner("shell", timeout_seconds=30)(a_payload("core.unknown"))


async def test_where_there_is_no_node_python_runs_its_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    run = subprocess_runner("node", timeout_seconds=30)
    assert await run(a_payload("node.echo")) == {"exit_code": 0, "stdout": "{}", "stderr": ""}


async def test_an_action_dies_with_the_process_that_started_it() -> None:
    starter = (
        "import os, subprocess, sys, time;"
        f"p = subprocess.Popen([sys.executable, '-I', '-S', {END_WITH_PARENT!r}, str(os.getpid()), 'sleep', '600']);"
        "print(p.pid, flush=True); time.sleep(600)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", starter, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    action = psutil.Process(int(await process.stdout.readline()))
    try:
        await eventually(lambda: action.name() == "sleep")
        os.kill(process.pid, signal.SIGKILL)
        await eventually(lambda: not action.is_running() or action.status() == psutil.STATUS_ZOMBIE)
    finally:
        # Should it have outlived its starter, it would hold the test's pipe open, and so the test.
        with contextlib.suppress(psutil.NoSuchProcess):
            action.kill()
        await process.wait()


def test_one_that_lost_its_parent_already_does_not_begin() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", END_WITH_PARENT, "1", "echo", "begun"],
        capture_output=True,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
