"""What `./run` sets up: as little as a command needs, and never a mixture of two locks."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import set_up

Done = list[str]


@pytest.fixture
def done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Done:
    """A clone whose pip only says what it was asked for."""
    steps: Done = []
    venv = tmp_path / ".venv"
    for name, place in {
        "ROOT": tmp_path,
        "LOCK": tmp_path / "requirements.lock",
        "RUNTIME_LOCK": tmp_path / "requirements.runtime.lock",
        "PROJECT": tmp_path / "pyproject.toml",
        "VENV": venv,
        "PYTHON": venv / "bin" / "python",
        "RUNTIME": venv / "runtime-set-up",
        "PACKAGES": venv / "packages-installed",
        "WHOLE": venv / "set-up",
    }.items():
        monkeypatch.setattr(set_up, name, place)
    for file in (set_up.LOCK, set_up.RUNTIME_LOCK, set_up.PROJECT):
        file.write_text("as it was\n")

    def make_venv(_lock: Path) -> None:
        steps.append("new .venv")
        for mark in (set_up.RUNTIME, set_up.PACKAGES, set_up.WHOLE):
            mark.unlink(missing_ok=True)
        set_up.PYTHON.parent.mkdir(parents=True, exist_ok=True)
        set_up.PYTHON.touch(0o755)

    says: dict[str, Callable[..., object]] = {
        "make_venv": make_venv,
        "find_pip": lambda _scratch: ["pip"],
        "install": lambda _pip, lock: steps.append(lock.name),
        "make_importable": lambda: steps.append("importable"),
        "run": lambda *_: steps.append("the project itself"),
    }
    for name, say in says.items():
        monkeypatch.setattr(set_up, name, say)
    return steps


WHOLE = ["new .venv", "requirements.lock", "the project itself", "importable"]
RUNTIME = ["new .venv", "requirements.runtime.lock", "importable"]


@pytest.mark.parametrize(
    ("before", "changed", "runtime_only", "steps"),
    [
        ([], None, True, RUNTIME),
        ([], None, False, WHOLE),
        ([True], None, True, []),
        ([False], None, False, []),
        ([False], None, True, []),
        ([True], None, False, WHOLE[1:]),
        ([True, False], "LOCK", False, WHOLE),
        ([True], "RUNTIME_LOCK", True, RUNTIME),
        ([False], "PROJECT", True, WHOLE[2:]),
        ([False], "PROJECT", False, WHOLE[2:]),
    ],
    ids=[
        "runtime is enough for the demo",
        "whole",
        "runtime is set up already",
        "whole is set up already",
        "whole is enough for the demo",
        "rest is added to the runtime",
        "packages of an older lock are removed",
        "another runtime lock",
        "changed project, runtime wanted",
        "changed project: no package is fetched",
    ],
)
def test_only_missing_steps_are_done(
    done: Done, before: list[bool], changed: str | None, runtime_only: bool, steps: Done
) -> None:
    for earlier in before:
        set_up.set_up(runtime_only=earlier)
    if changed:
        getattr(set_up, changed).write_text("changed\n")
    done.clear()
    set_up.set_up(runtime_only=runtime_only)
    assert done == steps


def test_half_a_set_up_is_done_again(done: Done, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(_pip: list[str], _lock: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(set_up, "install", killed)
        with pytest.raises(KeyboardInterrupt):
            set_up.set_up(runtime_only=True)
    done.clear()
    set_up.set_up(runtime_only=True)
    assert done == RUNTIME


def test_what_takes_long_says_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends when the second line was said, and never before."""
    waits = [sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(7)"]
    said: list[str] = []
    with subprocess.Popen(waits, stdin=subprocess.PIPE) as slow:

        def hear(line: str, **_: object) -> None:
            said.append(line)
            if len(said) == 2 and slow.stdin:
                slow.stdin.close()

        monkeypatch.setattr(set_up, "SAY_SECONDS", 0.01)
        monkeypatch.setattr(set_up, "print", hear, raising=False)
        assert set_up.finish(slow, "counting sheep") == 7
    assert all(line.startswith("./run: counting sheep: ") for line in said)


def test_packages_that_cannot_be_fetched_are_an_error_that_asks_for_the_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(set_up, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=r"setup failed at: .*\n.*HTTPS_PROXY and PIP_INDEX_URL"):
        set_up.run(sys.executable, "-c", "raise SystemExit(1)")
