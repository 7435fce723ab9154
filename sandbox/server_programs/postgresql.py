"""Where PostgreSQL's programs are: on this machine, or unpacked from Debian's packages."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox.server_programs import packages
from sandbox.server_programs.errors import SourceUnavailable
from sandbox.server_programs.rabbitmq import holds

PACKAGE = "postgresql"
VERSIONED_FOLDERS = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql@*/bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgreSQLPrograms:
    folder: Path
    library_path: str = ""
    # Everything that must move along when the programs are copied; None for what is installed.
    root: Path | None = None

    @property
    def initdb(self) -> Path:
        return self.folder / "initdb"

    @property
    def server(self) -> Path:
        return self.folder / "postgres"

    @property
    def client(self) -> Path:
        return self.folder / "psql"

    @classmethod
    def on_this_machine(cls) -> Self:
        # PATH comes last: what is called `postgres` there may be a wrapper.
        for folder in (*versioned_folders(Path("/")), *folder_of_pg_config(), *folder_on_path()):
            if is_usable(folder):
                return cls(folder=folder)
        raise SourceUnavailable("no PostgreSQL server (postgres with initdb beside it) found")

    @classmethod
    async def of_packages(cls) -> Self:
        return cls.under(await packages.unpacked(PACKAGE))

    @classmethod
    def under(cls, root: Path) -> Self:
        for folder in versioned_folders(root):
            if is_usable(folder):
                return cls(folder=folder, library_path=packages.library_path(root), root=root)
        raise SourceUnavailable(f"{root} holds no PostgreSQL server; remove that folder and try again")


def versioned_folders(root: Path) -> list[Path]:
    """Newest first."""
    found = [folder for pattern in VERSIONED_FOLDERS for folder in root.glob(pattern)]
    return sorted(found, key=version_of, reverse=True)


def version_of(folder: Path) -> float:
    digits = "".join(sign for sign in folder.parent.name if sign.isdigit() or sign == ".")
    try:
        return float(digits)
    except ValueError:
        return 0


def folder_of_pg_config() -> list[Path]:
    if not (program := shutil.which("pg_config")):
        return []
    asked = subprocess.run([program, "--bindir"], capture_output=True, text=True, check=False)
    return [Path(asked.stdout.strip())] if asked.returncode == 0 else []


def folder_on_path() -> list[Path]:
    return [Path(program).resolve().parent] if (program := shutil.which("postgres")) else []


def is_usable(folder: Path) -> bool:
    return holds(folder, "postgres", "initdb")
