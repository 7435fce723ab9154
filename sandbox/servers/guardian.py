"""Hold one server process: it ends with its owner, however the owner ends.

Run as a program of its own by `OwnedProcess`, with only the standard library. Standard input is the leash:
its first line says what to start, later lines are numbers of signals for the server, and its end (the owner
closed it, exited, or was killed) means: kill the server and all that it left behind, remove its folder if it has
one.
Standard output gets the server's process id. Exits as the server exited.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
REMOVAL_TRIES = 20


def prctl(option: int, argument: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0)


def read_start_line() -> bytes:
    """Unbuffered, so that no signal line behind it is swallowed."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(0)
        line += byte
    return line


def children_of(pid: int) -> list[int]:
    """Empty elsewhere than on Linux, and for one that has ended."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    with contextlib.suppress(OSError):
        return [int(child) for children in lists for child in children.read_text().split()]
    return []


def descendants_of(pid: int) -> list[int]:
    children = children_of(pid)
    return children + [other for child in children for other in descendants_of(child)]


def send(server: "subprocess.Popen[bytes]", number: int) -> None:
    """To the server alone: on SIGTERM each server stops its own children. SIGSTOP and SIGCONT go to all of its
    processes: PostgreSQL's sessions would go on working under a server that was frozen alone.
    """
    with contextlib.suppress(ProcessLookupError):
        server.send_signal(number)  # first the server: then it starts no more of them
        if number in {signal.SIGSTOP, signal.SIGCONT}:
            for pid in descendants_of(server.pid):
                os.kill(pid, number)


def kill_all_that_is_left(server_pid: int) -> None:
    """Kill the server's group, then whatever left it: PostgreSQL's backends and Erlang's ports have their own
    sessions.

    As the subreaper of these orphans we are their parent. Elsewhere than on Linux only the group is reached.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server_pid, signal.SIGKILL)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while children.exists():
        for pid in children.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def reap_orphans(server_pid: int) -> None:
    """Take the exit codes of what the server left to us, so that no zombie lasts as long as the server."""
    while sys.platform == "linux":
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None or ended.si_pid == server_pid:
            return
        os.waitpid(ended.si_pid, 0)


def remove(folder: str) -> None:
    for _ in range(REMOVAL_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not Path(folder).exists():
            return
        time.sleep(0.1)  # something that was killed a moment ago still had a file open or half made


def hold() -> NoReturn:
    start = json.loads(read_start_line())
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    asked_to_end: list[int] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda number, _: asked_to_end.append(number))

    prctl(PR_SET_CHILD_SUBREAPER, 1)
    with Path(start["log"]).open("ab") as log:
        server = subprocess.Popen(
            start["command"],
            env=start["environment"],
            cwd=start["start_in"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            # Should this guardian itself be killed, the kernel still ends the server. Set in the child after
            # its change of user, which would clear it.
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 (one thread, so fork is safe)
            user=start["uid"],
            group=start["gid"],
            extra_groups=None if start["uid"] is None else [],
        )
    print(server.pid, flush=True)

    let_go = False
    while not let_go and not asked_to_end and server.poll() is None:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            reap_orphans(server.pid)
        if 0 in ready:
            lines = os.read(0, 4096)
            let_go = not lines
            for number in lines.split():
                send(server, int(number))
    kill_all_that_is_left(server.pid)
    code = server.returncode if server.returncode is not None else -signal.SIGKILL
    if let_go and start["folder"]:
        remove(start["folder"])
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    hold()
