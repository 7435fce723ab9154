"""Ports and folders for private servers."""

import os
import random
import shutil
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sandbox.server_programs.account import Account

# Below the range from which kernels take the ports of outgoing connections: there, a port that was free a
# moment ago, or belongs to a server that is down just now and will be started again, may be taken by
# then.
PORTS = range(20_000, 32_000)


def free_port() -> int:
    for port in random.sample(PORTS, 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port of 127.0.0.1 found between {PORTS.start} and {PORTS.stop}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a private server keeps its folder, and its log: by default in the temp folder, and in that folder."""

    parent: Path | None = None
    log: Path | None = None


ANYWHERE = Place()


def private_folder(prefix: str, account: Account | None = None, parent: Path | None = None) -> Path:
    """A new folder that only `account` (we, where None) may enter; in `parent` where it may enter that."""
    if parent is None or (account and not is_reachable_by_all(parent)):
        parent = Path(tempfile.gettempdir()).resolve()
    if account and not is_reachable_by_all(parent):
        parent = Path("/tmp")  # noqa: S108 (mkdtemp makes the folder itself, private)
    folder = Path(tempfile.mkdtemp(prefix=f"dlq-handler-{prefix}-", dir=parent))
    if account:
        os.chown(folder, account.uid, account.gid)
    return folder


def is_reachable_by_all(path: Path) -> bool:
    return all(step.stat().st_mode & 0o001 for step in (path, *path.parents))


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
