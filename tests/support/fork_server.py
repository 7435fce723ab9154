"""Start processes of the product without its imports, which take a second of CPU each.

One server process per pytest process imports the product once and forks for each process that a test starts. A fork is
a process like any other: it has its own pid, environment, folder and output, and a test kills it like any other.
"""

import asyncio
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

ROOT = Path(__file__).parents[2]
# Settings are variables, and paths are short: a request is a few kilobytes.
LONGEST_REQUEST = 1 << 17
LONGEST_ANSWER = 64


class ForkedProcess:
    """The part of `asyncio.subprocess.Process` that tests use."""

    def __init__(self, status: socket.socket) -> None:
        self._status = status
        self._returncode: int | None = None
        self.pid = 0

    async def started(self) -> None:
        self.pid = _number(await asyncio.get_running_loop().sock_recv(self._status, LONGEST_ANSWER))

    @property
    def returncode(self) -> int | None:
        if self._returncode is None:
            with contextlib.suppress(BlockingIOError):
                self._end(self._status.recv(LONGEST_ANSWER))
        return self._returncode

    async def wait(self) -> int:
        if self.returncode is None:
            self._end(await asyncio.get_running_loop().sock_recv(self._status, LONGEST_ANSWER))
        assert self._returncode is not None
        return self._returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def _end(self, answer: bytes) -> None:
        self._returncode = _number(answer)
        self._status.close()


async def start_forked(
    program: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdout: BinaryIO, stderr: BinaryIO
) -> ForkedProcess:
    """`program` is what follows `python`: `-m MODULE`, `-c CODE` or a script, and arguments."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    request = json.dumps({"program": list(program), "cwd": str(cwd), "env": dict(env)}).encode()
    with theirs:
        socket.send_fds(_server(), [request], [theirs.fileno(), stdout.fileno(), stderr.fileno()])
    process = ForkedProcess(ours)
    await process.started()
    return process


@cache
def _server() -> socket.socket:
    """When this process ends the server sees the socket close, and ends with all of its forks."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    return ours


def _number(answer: bytes) -> int:
    if not answer:
        raise RuntimeError(
            "the fork server has ended: `python -m tests.support.fork_server` cannot import the product"
        )
    return int(answer)


def _next_fork(requests: socket.socket) -> dict[str, Any]:
    """Serve requests. Returns only in a fork, with the request that it is to carry out."""
    statuses: dict[int, socket.socket] = {}

    def report_ended(*_: object) -> None:
        while statuses:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with statuses.pop(pid) as ended, contextlib.suppress(OSError):
                ended.send(b"%d" % os.waitstatus_to_exitcode(status))

    signal.signal(signal.SIGCHLD, report_ended)
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, 3)
        if not message:
            _end_with_all(statuses)
        # Held back until the fork is in `statuses`: it may end at once.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            for other in (requests, *statuses.values()):
                other.close()
            status, stdout, stderr = descriptors
            os.dup2(stdout, sys.stdout.fileno())
            os.dup2(stderr, sys.stderr.fileno())
            for descriptor in descriptors:
                os.close(descriptor)
            request: dict[str, Any] = json.loads(message)
            return request
        status, *files = descriptors
        for descriptor in files:
            os.close(descriptor)
        statuses[pid] = socket.socket(fileno=status)
        statuses[pid].send(b"%d" % pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _end_with_all(statuses: Mapping[int, object]) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pid in statuses:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    sys.exit()


def main() -> None:
    import dlq_handler

    for module in pkgutil.walk_packages(dlq_handler.__path__, "dlq_handler."):
        if not module.name.startswith(("dlq_handler.__main__", "dlq_handler.database.migrations")):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()  # the collector of a fork would write to every page that it shares
    request = _next_fork(socket.socket(fileno=int(sys.argv[1])))
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    match request["program"]:
        case ["-m", module, *arguments]:
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *arguments]:
            sys.argv = ["-c", *arguments]
            exec(code, {"__name__": "__main__"})
        case [script, *arguments]:
            sys.argv = [script, *arguments]
            runpy.run_path(script, run_name="__main__")
        case other:
            raise ValueError(f"{other} is no program")


if __name__ == "__main__":
    main()
