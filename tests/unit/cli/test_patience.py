"""A command that waits reports it after a while, at a terminal only, and ends at Ctrl-C."""

import ast
import asyncio
import os
import signal
from pathlib import Path

import pytest

from dlq_handler import cli
from dlq_handler.broker.client.broker_errors import broker_errors
from dlq_handler.cli.patience import patience, wait_for
from tests.support.eventually import eventually


async def due_timers() -> None:
    """Until what was due before this call has been called."""
    called = asyncio.Event()
    asyncio.get_running_loop().call_later(0, called.set)
    await called.wait()


@pytest.mark.parametrize("is_terminal", [True, False])
async def test_progress_is_printed_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    lines: list[str] = []

    def is_reported() -> bool:
        lines.append(capsys.readouterr().err)
        return "".join(lines).startswith("still counting: 3 of 4 (0 s) …\n")

    with patience("counting", how_far=lambda: "3 of 4", after_seconds=0):
        if is_terminal:
            await eventually(is_reported)
        else:
            await due_timers()
            assert not is_reported()


async def test_what_is_quick_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with patience("counting", after_seconds=0):
        pass
    await due_timers()

    assert capsys.readouterr().err == ""


def test_ctrl_c_in_the_middle_of_a_step_is_no_lost_connection() -> None:
    async def ask() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        async with broker_errors("ask"):
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        wait_for("asking", ask())


def test_no_command_asks_a_server_but_with_patience() -> None:
    run_by = {
        path.name
        for path in Path(cli.__path__[0]).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"asyncio.run", "asyncio.Runner"}
    }

    assert run_by == {"patience.py"}
