"""Make .venv from requirements.lock (`./run setup`). Standard library only: it runs before anything is
installed.

Promises: nothing outside .venv is written but pip's own cache; every package is checked against its hash; the
mark that says "whole" is written last, so a set-up killed anywhere is done again. Never needs root, never
names a package index: pip's own configuration (PIP_INDEX_URL and the rest) decides where packages come from.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
PROJECT = ROOT / "pyproject.toml"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
# Each holds what it stands for (which folder, which lock, which project) and is written when that is done.
PACKAGES = VENV / "packages-installed"
WHOLE = VENV / "set-up"

DEBIAN_WHEELS = Path("/usr/share/python-wheels")

NO_PIP = """\
./run: pip could not be brought into .venv. Tried, in this order:
{tried}
One of these helps: apt-get install python3-venv, or python3-pip (Debian, Ubuntu); a Python of Homebrew
or pyenv, named by PYTHON=/path/to/python3 ./run setup (these bring pip along)."""


def set_up() -> None:
    packages = f"{ROOT}\n{LOCK.read_text()}"
    everything = packages + PROJECT.read_text()
    # Two commands started at once in a fresh clone: the second waits here and then finds everything done.
    with LOCK.open() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if is_marked(WHOLE, everything):
            return
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="dlq-handler-pip-") as scratch:
            if not is_marked(PACKAGES, packages):
                count = sum(1 for line in LOCK.read_text().splitlines() if line[:1].isalnum())
                print(
                    f"./run: making .venv with Python {sys.version.split()[0]}: {count} packages, about a minute",
                    flush=True,
                )
                if VENV.is_symlink():
                    VENV.unlink()
                venv.create(VENV, clear=True, symlinks=True, with_pip=False)
                pip = find_pip(Path(scratch))
                run(*pip, "install", "-qq", "--require-hashes", "--only-binary=:all:", "-r", str(LOCK))
                PACKAGES.write_text(packages)
            else:
                pip = find_pip(Path(scratch))
            # setuptools is in the lock: nothing is fetched to build the project itself.
            run(*pip, "install", "-qq", "--no-deps", "--no-build-isolation", "--no-index", "-e", str(ROOT))
        WHOLE.write_text(everything)
        print(f"./run: .venv is ready after {time.monotonic() - began:.0f} s", flush=True)


def is_marked(mark: Path, wanted: str) -> bool:
    return os.access(PYTHON, os.X_OK) and mark.exists() and mark.read_text() == wanted


def find_pip(scratch: Path) -> list[str]:
    """A command that runs pip for .venv."""
    tried: list[str] = []
    for way, pip in ways_to_pip(scratch):
        if pip and subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode == 0:
            return pip
        tried.append(f"  - {way}")
    raise SystemExit(NO_PIP.format(tried="\n".join(tried)))


def ways_to_pip(scratch: Path) -> Iterator[tuple[str, list[str]]]:
    if not PACKAGES.exists() and importlib.util.find_spec("ensurepip"):
        subprocess.run([PYTHON, "-m", "ensurepip", "--default-pip"], capture_output=True, check=False)
    yield "ensurepip of this Python", [str(PYTHON), "-m", "pip"]
    # --python came with pip 22.3; an older one fails here and the next way is tried.
    yield "pip of this Python", [sys.executable, "-m", "pip", "--python", str(PYTHON)]
    yield f"pip's wheel in {DEBIAN_WHEELS}", pip_of_wheel(DEBIAN_WHEELS)
    yield "Debian's package python3-pip-whl, unpacked", pip_of_wheel(unpack_pip_package(scratch))


def pip_of_wheel(folder: Path) -> list[str]:
    """A wheel is a zip that Python can run: it installs itself into .venv."""
    wheel = next(iter(sorted(folder.glob("pip-*.whl"))), None)
    if wheel is None:
        return []
    install = [str(PYTHON), f"{wheel}/pip", "install", "--quiet", "--no-index", str(wheel)]
    installed = subprocess.run(install, capture_output=True, check=False).returncode == 0
    return [str(PYTHON), "-m", "pip"] if installed else []


def unpack_pip_package(scratch: Path) -> Path:
    """apt with a state of its own: no root needed, nothing installed, the system's lists untouched."""
    unpacked = scratch / "unpacked"
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        return unpacked
    (scratch / "lists" / "partial").mkdir(parents=True)
    (scratch / "cache" / "archives" / "partial").mkdir(parents=True)
    options = [
        f"Dir::State::lists={scratch / 'lists'}",
        f"Dir::Cache={scratch / 'cache'}",
        "Debug::NoLocking=1",
        "APT::Sandbox::User=",
        "Acquire::Languages=none",
    ]
    apt = ["apt-get", "-q", *(part for option in options for part in ("-o", option))]
    for command in ([*apt, "update"], [*apt, "download", "python3-pip-whl"]):
        subprocess.run(command, cwd=scratch, capture_output=True, check=False)
    for package in scratch.glob("python3-pip-whl_*.deb"):
        subprocess.run(["dpkg", "-x", package, unpacked], capture_output=True, check=False)
    return unpacked / "usr" / "share" / "python-wheels"


def run(*command: str) -> None:
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        raise SystemExit(f"./run: setup failed at: {' '.join(command)}")


if __name__ == "__main__":
    try:
        set_up()
    except KeyboardInterrupt:
        print("\n./run: interrupted; the next command takes it up again", file=sys.stderr)
        sys.exit(130)
