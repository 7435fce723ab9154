"""The end of the show: the closing table, two figures, and on failure what was broken and where to read on."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.demo.promises import Promise, table
from sandbox.demo.view import View
from sandbox.demo.world import DemoFailed

_started = time.time()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    promises: Sequence[Promise]
    broken: DemoFailed | None
    first_rescue_at: float | None
    """By the wall clock."""
    story_seconds: float
    logs: Path


def show_result(view: View, ending: Ending) -> bool:
    """True when the demo played to its end and every promise was kept."""
    view.text(["", "What the auditor saw (the commands are for `./run up`)", ""])
    view.text([*table(ending.promises, view.width), ""])
    if ending.first_rescue_at is not None:
        after_seconds = ending.first_rescue_at - _command_began()
        view.line(f"first rescued execution {after_seconds:.0f} s after the command began")
    view.line(f"the story took {ending.story_seconds:.0f} s after the servers were ready")
    broken = [promise for promise in ending.promises if not promise.held]
    for promise in broken:
        view.line(
            f"BROKEN: {promise.promise}: expected {promise.expected}, seen {promise.seen}; "
            f"read {ending.logs / promise.log}.log"
        )
    if ending.broken is not None:
        view.line(f"BROKEN OFF: {ending.broken}; read {ending.broken.log}")
    return not broken and ending.broken is None


def _command_began() -> float:
    """By the wall clock: when `./run demo` was typed, set-up included, or when this process started."""
    try:
        return float(os.environ["DLQ_DEMO_BEGAN"])
    except (KeyError, ValueError):
        return _started
