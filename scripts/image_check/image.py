"""What the built image says about itself, and what must not be in it."""

import json
import signal
from pathlib import Path
from typing import Any

from scripts.image_check.buildah import NAME
from scripts.image_check.failed import CheckFailed
from scripts.image_check.lent_pip import LentPip

BUILD_TOOLS = (
    "bin/pip",
    "bin/pip3",
    "lib/python3*/site-packages/pip",
    "lib/python3*/site-packages/setuptools",
)


class Image:
    def __init__(self, inspected: dict[str, Any]) -> None:
        self.name = NAME
        config = inspected["Docker"]["config"]
        self._inspected = json.dumps(inspected)
        self.environment: dict[str, str] = dict(pair.split("=", 1) for pair in config["Env"])
        self.command: list[str] = [*config["Entrypoint"], *config["Cmd"]]
        self.stop_signal = signal.Signals[config["StopSignal"]]
        health = config["Healthcheck"]
        self.health_command: list[str] = health["Test"][1:]
        self.health_timeout_seconds: float = health["Timeout"] / 1e9
        user, _, group = config["User"].partition(":")
        if not (user.isdigit() and group.isdigit() and int(user) > 0):
            raise CheckFailed(f"its user is {config['User']!r}, wanted are two numbers that are not root's")
        self.uid, self.gid = int(user), int(group)

    def refuse_traces(self, root: Path, pip: LentPip) -> None:
        """Neither what was lent to the build nor what built it."""
        addresses = [word for value in pip.values.values() for word in value.split() if "/" in word]
        left = ["where packages came from" for address in addresses if address in self._inspected]
        ours = root / "opt/dlq-handler"
        files = [*root.glob("etc/pip.conf"), *ours.rglob("pip.conf")]
        files += [path for tool in BUILD_TOOLS for path in ours.glob(tool)]
        left += [str(path.relative_to(root)) for path in files]
        if left:
            raise CheckFailed(f"the image holds what only the build should have: {', '.join(left)}")
