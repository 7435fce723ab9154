"""Become another program that dies with whoever started us, however that one dies.

Run by its path, with only the standard library: `tethered.py PARENT_PID PROGRAM [ARGUMENTS]`. A program of its own,
because setting this between fork and exec of a worker that has threads is not safe.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def become(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("its parent is gone")  # it died before we were tethered to it
    os.execvp(command[0], command)  # noqa: S606 (on purpose: it takes our place)


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
