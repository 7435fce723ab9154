"""The folder of one stage (`.sandbox/`): its lock, its state, its logs, its empty settings, its servers' folders.

One owner at a time: the kernel lets go of the lock however the owner ends. Taking the folder clears what a
killed owner left: processes that are still the recorded ones, folders of servers, the state. Logs of the last run
stay until the next one begins.
"""

import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from sandbox.stage.parts import PARTS
from sandbox.stage.process_identity import ProcessIdentity
from sandbox.stage.state import FILE, State

OWN_PREFIX = "dlq-handler-"
"""Of every folder of ours outside of this one, where it could not be made inside."""
LONGEST_SOCKET_BYTES = 100
NO_SETTINGS = "# Empty on purpose. `./run up --config FILE` starts a sandbox that reads FILE.\n"


class FolderTaken(Exception):
    """Another stage is running in this folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"a stage is already running in {folder}")


class Folder:
    """Taken; `take` makes one."""

    def __init__(self, path: Path, state: State) -> None:
        self.path = path
        self.servers = path / "servers"
        self.no_settings = path / "no-settings.yaml"
        """What a sidecar reads that was given no file: nothing, and nothing of the folder that it is called in."""
        self.state = state

    @classmethod
    @contextmanager
    def take(cls, path: Path, *, print_line: Callable[[str], None]) -> Iterator[Self]:
        path = path.resolve()
        logs_of(path).mkdir(parents=True, exist_ok=True)
        with (path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderTaken(path) from None
            clear(path, print_line=print_line)
            clear_beside(path, print_line=print_line)
            folder = cls(path, State(keeper=ProcessIdentity.of_this_process()))
            folder.servers.mkdir()
            folder.no_settings.write_text(NO_SETTINGS)
            folder.record()
            try:
                yield folder
            finally:
                shutil.rmtree(folder.servers, ignore_errors=True)
                folder.no_settings.unlink(missing_ok=True)
                (path / FILE).unlink(missing_ok=True)

    def log(self, part: str) -> Path:
        return log_of(self.path, part)

    def forget_logs(self) -> None:
        """Of the run before."""
        for part in PARTS:
            self.log(part).unlink(missing_ok=True)

    def record(self, **changes: Any) -> None:
        """Into the state, and onto the disk."""
        self.state = replace(self.state, **changes)
        self.state.write(self.path)


def clear(path: Path, *, print_line: Callable[[str], None]) -> None:
    """Remove what an owner that was killed left behind. Says so, when there was one."""
    left = State.read(path)
    if left:
        alive = [part for part, mark in left.processes.items() if mark.is_alive]
        for part in alive:
            left.processes[part].send(signal.SIGKILL)
        folders = [Path(folder) for folder in left.folders if Path(folder).name.startswith(OWN_PREFIX)]
        remaining = [folder for folder in folders if folder.exists()]
        for folder in remaining:
            shutil.rmtree(folder, ignore_errors=True)
        if left.socket:
            remove_socket(Path(left.socket))
        print_line(
            f"clearing what a killed run (process {left.keeper.pid}) left: "
            f"{', '.join(alive) or 'no process'} still running, {len(remaining)} server folders, its state"
        )
    shutil.rmtree(path / "servers", ignore_errors=True)
    (path / FILE).unlink(missing_ok=True)


def clear_beside(path: Path, *, print_line: Callable[[str], None]) -> None:
    """Also folders of their own that killed demos left, recognised by a state without a living keeper."""
    for other in path.parent.glob(f"{OWN_PREFIX}*/{FILE}"):
        state = State.read(other.parent)
        if other.parent != path and state and not state.keeper.is_alive:
            clear(other.parent, print_line=print_line)
            shutil.rmtree(other.parent, ignore_errors=True)


def socket_in(path: Path) -> Path:
    """Where the keeper listens: the kernel takes no longer path than about a hundred bytes."""
    socket = path / "keeper.sock"
    if len(os.fsencode(socket)) <= LONGEST_SOCKET_BYTES:
        return socket
    return Path(tempfile.mkdtemp(prefix=OWN_PREFIX)) / "keeper.sock"


def remove_socket(socket: Path) -> None:
    socket.unlink(missing_ok=True)
    if socket.parent.name.startswith(OWN_PREFIX):
        shutil.rmtree(socket.parent, ignore_errors=True)


def logs_of(path: Path) -> Path:
    return path / "logs"


def log_of(path: Path, part: str) -> Path:
    return logs_of(path) / f"{part}.log"
