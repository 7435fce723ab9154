"""This machine's pip configuration, lent to a build: where packages come from, and the local files that it names.

Read from pip itself, so that files and variables count alike. Written only into the run's own folder, as the build
secret `pip` of the Dockerfile; `Image.refuse_traces` looks for what it left.
"""

import ast
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from sandbox.server_programs.program import output_of

# What decides where packages come from; the rest is about the machine that it was set for.
LENT = (
    "cert", "client-cert", "extra-index-url", "find-links", "index-url", "no-index", "proxy", "timeout", "trusted-host",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LentPip:
    values: dict[str, str]

    @classmethod
    async def of_this_machine(cls) -> Self:
        listed = await output_of(sys.executable, "-m", "pip", "config", "list")
        found: dict[str, str] = {}
        # As pip weighs them: variables over the section of the command over the global one.
        for section in ("global.", "install.", ":env:."):
            for line in listed.splitlines():
                name, _, value = line.removeprefix(section).partition("=")
                if line.startswith(section) and name in LENT:
                    found[name] = ast.literal_eval(value)
        return cls(values=found)

    @property
    def conf(self) -> str:
        lines = [f"{name} = {' '.join(value.split())}\n" for name, value in self.values.items()]
        return "[global]\n" + "".join(lines)

    @property
    def paths(self) -> list[Path]:
        """Local files and folders that it names: the build needs them at the same place."""
        words = [word for value in self.values.values() for word in value.split()]
        paths = {Path(unquote(urlsplit(word).path)) for word in words if word.startswith(("file://", "/"))}
        return sorted(_packages_root(path) for path in paths if path.exists())


def _packages_root(path: Path) -> Path:
    # An index in files ("…/simple") links to packages beside it.
    return path.parent if path.name == "simple" else path
