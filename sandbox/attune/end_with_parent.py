"""Replace this process by another program that ends with its parent, however the parent ends.

Run by its path, with only the standard library: `end_with_parent.py PARENT_PID PROGRAM [ARGUMENTS]`. It is a program of
its own because a worker with threads must not run code between fork and exec.
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
        sys.exit("the parent has ended")  # before the line above took effect
    os.execvp(command[0], command)  # noqa: S606 (on purpose: it takes the place of this process)


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
