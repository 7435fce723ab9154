"""Make .venv from requirements.lock (`./run setup`). Standard library only: it runs before anything is
installed.

`--runtime` is content with what the sidecar itself needs, half as much: enough for demo and sandbox. `--servers`
fetches the servers' programs into the cache at the same time; `--browser` Chromium too.

Promises: nothing outside .venv is written but caches; every package is checked against its hash; the mark that
says "whole" is written last, so a set-up killed anywhere is done again. Never needs root, never names a package
index: pip's own configuration (PIP_INDEX_URL and the rest) decides where packages come from.
"""

from __future__ import annotations

import argparse
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
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
RUNTIME_LOCK = ROOT / "requirements.runtime.lock"
PROJECT = ROOT / "pyproject.toml"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
# Each holds what it stands for (which folder, which lock, which project) and is written when that is done.
RUNTIME = VENV / "runtime-set-up"
PACKAGES = VENV / "packages-installed"
WHOLE = VENV / "set-up"

SAY_SECONDS = 10
DEBIAN_WHEELS = Path("/usr/share/python-wheels")

NO_PIP = """\
./run: pip could not be brought into .venv. Tried, in this order:
{tried}
One of these helps: apt-get install python3-venv, or python3-pip (Debian, Ubuntu); a Python of Homebrew
or pyenv, named by PYTHON=/path/to/python3 ./run setup (these bring pip along)."""

NO_NETWORK = "./run: is there a way to a package index? pip heeds HTTPS_PROXY and PIP_INDEX_URL"


def set_up(*, runtime_only: bool) -> None:
    runtime = f"{ROOT}\n{RUNTIME_LOCK.read_text()}"
    packages = f"{ROOT}\n{LOCK.read_text()}"
    everything = packages + PROJECT.read_text()
    # Two commands started at once in a fresh clone: the second waits here and then finds everything done.
    with LOCK.open() as turn, tempfile.TemporaryDirectory(prefix="dlq-handler-pip-") as scratch:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if is_marked(WHOLE, everything) or (runtime_only and is_marked(RUNTIME, runtime)):
            return
        began = time.monotonic()
        if runtime_only and not is_marked(PACKAGES, packages):
            make_venv(RUNTIME_LOCK)
            install(find_pip(Path(scratch)), RUNTIME_LOCK)
            make_importable()
            RUNTIME.write_text(runtime)
        else:
            have_packages = is_marked(PACKAGES, packages)
            # Packages of an older lock are cleared away; those of the runtime alone are part of any.
            if not have_packages and (PACKAGES.exists() or not is_marked(RUNTIME, runtime)):
                make_venv(LOCK)
            pip = find_pip(Path(scratch))
            if not have_packages:
                install(pip, LOCK)
                PACKAGES.write_text(packages)
            # setuptools is in the lock: nothing is fetched to build the project itself.
            build = ("--no-deps", "--no-build-isolation", "--no-index", "-e", str(ROOT))
            run(*pip, "install", "-qq", *build)
            make_importable()
            WHOLE.write_text(everything)
        print(f"./run: .venv is ready after {time.monotonic() - began:.0f} s", flush=True)


def make_venv(lock: Path) -> None:
    count = sum(1 for line in lock.read_text().splitlines() if line[:1].isalnum())
    print(
        f"./run: making .venv with Python {sys.version.split()[0]}: {count} packages, a minute or two",
        flush=True,
    )
    if VENV.is_symlink():
        VENV.unlink()
    venv.create(VENV, clear=True, symlinks=True, with_pip=False)


def install(pip: list[str], lock: Path) -> None:
    run(*pip, "install", "-qq", "--require-hashes", "--only-binary=:all:", "-r", str(lock))


def make_importable() -> None:
    """This folder, from any working directory: `sandbox` is not installed, and a runtime set-up has no setuptools."""
    site = subprocess.run(
        [PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (Path(site) / "dlq-handler-root.pth").write_text(f"{ROOT}\n")


@contextmanager
def fetching_programs(*modules: str) -> Iterator[None]:
    """Fetch while pip works. A failure is not an error here: the command that needs a program reports it."""
    fetching = [subprocess.Popen([sys.executable, "-B", "-m", module], cwd=ROOT) for module in modules]
    try:
        yield
        for one in fetching:
            finish(one, "fetching the servers' packages")
    finally:
        for one in fetching:
            one.terminate()
            one.wait()


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
    with subprocess.Popen(command, cwd=ROOT) as pip:
        try:
            code = finish(pip, "fetching and installing packages")
        except BaseException:
            pip.kill()
            raise
    if code != 0:
        raise SystemExit(f"./run: setup failed at: {' '.join(command)}\n{NO_NETWORK}")


def finish(process: subprocess.Popen[bytes], what: str) -> int:
    """Its exit code. Says now and then that it goes on: a silent minute looks like one that hangs."""
    began = time.monotonic()
    while True:
        try:
            return process.wait(SAY_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"./run: {what}: {time.monotonic() - began:.0f} s so far", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--runtime", action="store_true")
    parser.add_argument("--servers", action="store_true")
    parser.add_argument("--browser", action="store_true")
    wanted = parser.parse_args()
    try:
        programs = [
            *(["sandbox.server_programs"] if wanted.servers else []),
            *(["tests.support.fetch_browser"] if wanted.browser else []),
        ]
        with fetching_programs(*programs):
            set_up(runtime_only=wanted.runtime)
    except KeyboardInterrupt:
        print("\n./run: interrupted; the next command takes it up again", file=sys.stderr)
        sys.exit(130)
