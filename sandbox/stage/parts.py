"""The names of a stage's parts, and the ways to break one."""

from enum import StrEnum

SERVERS = ("broker", "database")
WORKERS = {"worker-shell": "shell", "worker-python": "python", "worker-node": "node"}
"""Each with the runtime it has."""
ATTUNE = ("api", "executor", *WORKERS)
PARTS = (*SERVERS, *ATTUNE, "sidecar")


class How(StrEnum):
    """A way to break a part."""

    KILL = "kill"
    STOP = "stop"
    HANG = "hang"
