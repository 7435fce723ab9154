"""Identify a process by its id and its start time. Ids are reused, the pair is not."""

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    pid: int
    started: str
    """Opaque; equal only for the same process."""

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """None when there is no such process."""
        started = start_of(pid)
        return cls(pid=pid, started=started) if started else None

    @classmethod
    def of_this_process(cls) -> Self:
        return cls(pid=os.getpid(), started=start_of(os.getpid()) or "")

    @property
    def is_alive(self) -> bool:
        return start_of(self.pid) == self.started

    def send(self, number: signal.Signals) -> None:
        """Sends nothing if the process has ended and another one has its id."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def start_of(pid: int) -> str | None:
    stat = Path(f"/proc/{pid}/stat")
    try:
        # Behind the name, which may hold anything: the state first, the start in ticks since boot as the 20th.
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return None if Path("/proc/self/stat").exists() else start_by_ps(pid)
    # A zombie has ended: it only waits for its parent to look.
    return f"{fields[19]}@{boot()}" if fields[0] not in {"Z", "X"} else None


def boot() -> str:
    """Ticks begin anew with every boot, and so do ids."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_by_ps(pid: int) -> str | None:
    asked = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or None
