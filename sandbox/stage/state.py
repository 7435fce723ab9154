"""What `.sandbox/state.json` says of a stage: who keeps it, what runs where, and how to talk to it.

Written whole or not at all, readable by its user alone (it holds passwords). What cannot be read is no state.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from sandbox.server_programs.program import Client
from sandbox.stage.process_identity import ProcessIdentity

FILE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    keeper: ProcessIdentity
    is_up: bool = False
    """False while parts are still starting."""
    times: str = ""
    """Their name."""
    config: str = ""
    """The file that the sidecar and its commands read; empty: none."""
    socket: str = ""
    processes: Mapping[str, ProcessIdentity] = field(default_factory=dict)
    """By part; only those that run."""
    folders: tuple[str, ...] = ()
    """Of the servers; wherever they had to be made, they are to go with the stage."""
    urls: Mapping[str, str] = field(default_factory=dict)
    clients: Mapping[str, Client] = field(default_factory=dict)
    """Command lines for people: psql, rabbitmqctl, dlq-handler."""

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """None where there is none, or one of another version."""
        try:
            return cls._of(json.loads((folder / FILE).read_text()))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    @classmethod
    def _of(cls, written: dict[str, Any]) -> Self:
        return cls(
            **{
                **written,
                "keeper": ProcessIdentity(**written["keeper"]),
                "processes": {part: ProcessIdentity(**mark) for part, mark in written["processes"].items()},
                "folders": tuple(written["folders"]),
                "clients": {name: Client(**client) for name, client in written["clients"].items()},
            }
        )

    def write(self, folder: Path) -> None:
        unfinished = folder / f"{FILE}.unfinished"
        with open(unfinished, "w", opener=private) as file:
            json.dump(asdict(self), file, indent=2)
        unfinished.replace(folder / FILE)


def private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
