"""Where RabbitMQ's and Erlang's programs are: on this machine, or unpacked from Debian's packages."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox.server_programs import packages
from sandbox.server_programs.errors import SourceUnavailable

PACKAGE = "rabbitmq-server"
# The server's own scripts. Distributions put wrappers of the same name on PATH that change the user and the
# paths.
SCRIPT_FOLDERS = (
    "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin",
    "opt/rabbitmq/sbin",
    "opt/homebrew/opt/rabbitmq/sbin",
    "usr/local/opt/rabbitmq/sbin",
)
ERLANG_FOLDERS = ("usr/lib/erlang/bin", "usr/local/lib/erlang/bin", "opt/erlang/lib/erlang/bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitMQPrograms:
    scripts: Path
    erlang: Path
    library_path: str = ""
    root: Path | None = None  # where the packages were unpacked; None for what is installed

    @property
    def server(self) -> Path:
        return self.scripts / "rabbitmq-server"

    @property
    def control(self) -> Path:
        return self.scripts / "rabbitmqctl"

    @property
    def epmd(self) -> Path:
        return self.erlang / "epmd"

    @classmethod
    def on_this_machine(cls) -> Self:
        scripts = script_folders(Path("/")) + folder_on_path("rabbitmq-server")
        erlang = erlang_folders(Path("/")) + folder_on_path("erl")
        if not (scripts and erlang):
            raise SourceUnavailable("no RabbitMQ server with Erlang's erl and epmd found")
        return cls(scripts=scripts[0], erlang=erlang[0])

    @classmethod
    async def of_packages(cls) -> Self:
        root = await packages.unpacked(PACKAGE, point_erlang_at)
        # Of the two, RabbitMQ or Erlang, one may be installed, and is then not among what was unpacked.
        scripts = script_folders(root) + script_folders(Path("/"))
        erlang = erlang_folders(root) + erlang_folders(Path("/"))
        if not (scripts and erlang):
            raise SourceUnavailable(f"{root} holds no RabbitMQ server; remove that folder and try again")
        return cls(scripts=scripts[0], erlang=erlang[0], library_path=packages.library_path(root), root=root)


def script_folders(root: Path) -> list[Path]:
    """Newest first."""
    found = [folder for pattern in SCRIPT_FOLDERS for folder in sorted(root.glob(pattern), reverse=True)]
    return [folder for folder in found if holds(folder, "rabbitmq-server", "rabbitmqctl")]


def erlang_folders(root: Path) -> list[Path]:
    found = [folder for pattern in ERLANG_FOLDERS for folder in root.glob(pattern)]
    return [folder for folder in found if holds(folder, "erl", "epmd")]


def folder_on_path(program: str) -> list[Path]:
    beside = {"rabbitmq-server": "rabbitmqctl", "erl": "epmd"}[program]
    found = shutil.which(program)
    return [Path(found).parent] if found and holds(Path(found).parent, beside) else []


def holds(folder: Path, *programs: str) -> bool:
    return all(is_program(folder / program) for program in programs)


def is_program(path: Path) -> bool:
    return os.access(path, os.X_OK) and path.is_file()


def point_erlang_at(unpacked: Path, final: Path) -> None:
    """Erlang's start scripts hold the absolute folder of the package: there, another Erlang or none would be
    started.
    """
    for script in unpacked.glob("usr/lib/erlang/**/bin/*"):
        if script.name in {"erl", "start"} and not script.is_symlink():
            text = script.read_text()
            script.write_text(
                re.sub(r"(?m)^(\s*)ROOTDIR=/usr/lib/erlang$", rf'\1ROOTDIR="{final}/usr/lib/erlang"', text)
            )
