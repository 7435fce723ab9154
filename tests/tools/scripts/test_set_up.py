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
    told: Done = []
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
        told.append("new .venv")
        for mark in (set_up.RUNTIME, set_up.PACKAGES, set_up.WHOLE):
            mark.unlink(missing_ok=True)
        set_up.PYTHON.parent.mkdir(parents=True, exist_ok=True)
        set_up.PYTHON.touch(0o755)

    says: dict[str, Callable[..., object]] = {
        "make_venv": make_venv,
        "find_pip": lambda _scratch: ["pip"],
        "install": lambda _pip, lock: told.append(lock.name),
        "make_importable": lambda: told.append("importable"),
        "run": lambda *_: told.append("the project itself"),
    }
    for name, say in says.items():
        monkeypatch.setattr(set_up, name, say)
    return told


WHOLE = ["new .venv", "requirements.lock", "the project itself", "importable"]
RUNTIME = ["new .venv", "requirements.runtime.lock", "importable"]


def test_demo_is_content_with_the_runtime(done: Done) -> None:
    set_up.set_up(runtime_only=True)
    assert done == RUNTIME


@pytest.mark.parametrize("runtime_only", [True, False])
def test_what_is_set_up_is_not_set_up_again(done: Done, runtime_only: bool) -> None:
    set_up.set_up(runtime_only=runtime_only)
    done.clear()
    set_up.set_up(runtime_only=runtime_only)
    assert done == []


def test_whole_is_enough_for_the_demo(done: Done) -> None:
    set_up.set_up(runtime_only=False)
    assert done == WHOLE
    done.clear()
    set_up.set_up(runtime_only=True)
    assert done == []


def test_rest_is_added_to_the_runtime(done: Done) -> None:
    set_up.set_up(runtime_only=True)
    done.clear()
    set_up.set_up(runtime_only=False)
    assert done == WHOLE[1:]


def test_packages_of_an_older_lock_are_cleared_away(done: Done) -> None:
    set_up.set_up(runtime_only=True)
    set_up.set_up(runtime_only=False)
    done.clear()
    set_up.LOCK.write_text("one package less\n")
    set_up.set_up(runtime_only=False)
    assert done == WHOLE


def test_another_runtime_lock_makes_a_new_runtime(done: Done) -> None:
    set_up.set_up(runtime_only=True)
    done.clear()
    set_up.RUNTIME_LOCK.write_text("newer\n")
    set_up.set_up(runtime_only=True)
    assert done == RUNTIME


@pytest.mark.parametrize("runtime_only", [True, False])
def test_changed_project_is_installed_without_fetching_packages(done: Done, runtime_only: bool) -> None:
    set_up.set_up(runtime_only=False)
    done.clear()
    set_up.PROJECT.write_text("another entry point\n")
    set_up.set_up(runtime_only=runtime_only)
    assert done == WHOLE[2:]


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
