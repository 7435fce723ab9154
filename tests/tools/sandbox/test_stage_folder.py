"""The recorded state of a stage counts only for processes that still exist."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.server_programs.program import Client
from sandbox.stage.folder import Folder, FolderTaken, socket_in
from sandbox.stage.process_identity import ProcessIdentity
from sandbox.stage.state import FILE, State
from sandbox.stage.up_and_down import running

US = ProcessIdentity.of_this_process()


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until a test ends it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def mark_of(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    mark = ProcessIdentity.of(process.pid)
    assert mark
    return mark


def left_behind(folder: Path, **facts: object) -> None:
    """As by a keeper that was killed."""
    dead = replace(US, started="long ago")
    replace(State(keeper=dead), **facts).write(folder)  # type: ignore[arg-type]  # facts are fields


def test_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = State(
        keeper=US,
        is_up=True,
        times="scaled",
        processes={"broker": US},
        folders=("/a",),
        urls={"api": "http://127.0.0.1:1"},
        clients={"psql": Client(command=["/bin/psql"], environment={"PGPORT": "1"})},
    )
    written.write(tmp_path)
    assert State.read(tmp_path) == written


def test_state_with_its_passwords_is_for_its_user_alone(tmp_path: Path) -> None:
    State(keeper=US).write(tmp_path)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", '{"keeper": 1}', '{"keeper": {"pid": 1}}'])
def test_what_cannot_be_read_is_no_state(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert State.read(tmp_path) is None


def test_a_process_is_known_again_until_it_has_ended(stranger: subprocess.Popen[bytes]) -> None:
    mark = mark_of(stranger)
    while_it_runs = mark.is_alive
    stranger.kill()
    os.waitid(os.P_PID, stranger.pid, os.WEXITED | os.WNOWAIT)
    as_a_zombie = mark.is_alive  # which still has its id
    stranger.wait()
    assert (while_it_runs, as_a_zombie, mark.is_alive) == (True, False, False)


def test_another_process_with_the_same_pid_is_not_the_keeper(
    tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    State(keeper=replace(mark_of(stranger), started="before"), is_up=True).write(tmp_path)
    assert running(tmp_path) is None


def test_clearing_kills_the_recorded_process_and_spares_another_with_the_same_pid(
    tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    left_behind(tmp_path, processes={"sidecar": replace(mark_of(stranger), started="before")})
    with Folder.take(tmp_path, print_line=lambda _: None):
        assert stranger.poll() is None
    left_behind(tmp_path, processes={"sidecar": mark_of(stranger)})
    with Folder.take(tmp_path, print_line=lambda _: None):
        assert stranger.wait(10) == -signal.SIGKILL


def test_clearing_removes_only_the_folders_of_the_servers_and_reports_it(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "dlq-handler-postgresql-x", tmp_path / "precious"
    ours.mkdir()
    theirs.mkdir()
    folder = tmp_path / "sandbox"
    folder.mkdir()
    left_behind(folder, folders=(str(ours), str(theirs)))
    said: list[str] = []
    with Folder.take(folder, print_line=said.append) as taken:
        assert taken.state.keeper == US
    assert not ours.exists()
    assert theirs.exists()
    assert f"killed run (process {US.pid})" in said[0]
    assert not (folder / FILE).exists()


def test_folders_of_killed_demos_are_cleared_by_the_next(tmp_path: Path) -> None:
    killed, living, kept = (tmp_path / f"dlq-handler-demo-{name}" for name in ("killed", "living", "kept"))
    for folder in (killed, living, kept):
        folder.mkdir()
    left_behind(killed)
    State(keeper=US).write(living)
    with Folder.take(tmp_path / "dlq-handler-demo-next", print_line=lambda _: None):
        assert not killed.exists()
        assert living.exists()
        assert kept.exists()  # it ended by itself and keeps its logs


def test_a_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    with (
        Folder.take(tmp_path, print_line=lambda _: None),
        pytest.raises(FolderTaken, match="already running"),
        Folder.take(tmp_path, print_line=lambda _: None),
    ):
        pass
    with Folder.take(tmp_path, print_line=lambda _: None):
        pass


def test_a_folder_too_deep_for_a_socket_has_it_elsewhere(tmp_path: Path) -> None:
    assert socket_in(tmp_path).parent == tmp_path
    elsewhere = socket_in(tmp_path / ("d" * 100))
    assert elsewhere.parent.parent != tmp_path
    elsewhere.parent.rmdir()
