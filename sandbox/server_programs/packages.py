"""Debian's and Ubuntu's packages without installing them: downloaded and unpacked into the user's cache
folder.

Needs no root, touches neither apt's state nor dpkg's. What is in the cache is whole: it is unpacked beside
its place and renamed into it, so a killed download leaves nothing that is taken for a server. Keyed by
distribution, version and architecture, because the libraries come from the machine.
"""

import asyncio
import fcntl
import os
import platform
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox.server_programs.errors import SourceUnavailable
from sandbox.server_programs.program import output_of

# Needed by the packages' install scripts and services, which are not run; libllvm (100 MB) only by
# PostgreSQL's just-in-time compiler, which private servers have off, and by the graphics drivers of a screen.
LEFT_OUT = (
    "adduser", "cron", "init-system-helpers", "libgl1-mesa-dri", "libllvm", "libz3", "logrotate", "lsb-base",
    "postgresql-client-common", "postgresql-common", "ssl-cert", "sysvinit-utils", "x11-utils", "xdg-utils",
)  # fmt: skip


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    release = platform.freedesktop_os_release()
    version = release.get("VERSION_ID") or release.get("VERSION_CODENAME", "rolling")
    return Path(home) / "dlq-handler" / f"{release['ID']}-{version}-{platform.machine()}"


async def unpacked(
    package: str, finish: Callable[[Path, Path], None] | None = None, *, always: Sequence[str] = ()
) -> Path:
    """The root folder of `package` and all it needs that this machine lacks. The first call downloads.

    `finish(unpacked, final)` repairs what the unpacked files say about their place before they are moved to
    `final`. `always` names packages that are unpacked too, even where this machine has them.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise SourceUnavailable("apt-get and dpkg-deb are not on this machine (it is not a Debian or Ubuntu)")
    final = cache_folder() / package
    final.parent.mkdir(parents=True, exist_ok=True)
    async with turn(final.with_suffix(".lock")):
        if not final.exists():
            with tempfile.TemporaryDirectory(prefix=f".{package}-", dir=final.parent) as scratch:
                root = await download(package, Path(scratch), always)
                if finish:
                    finish(root, final)
                root.rename(final)
    return final


@asynccontextmanager
async def turn(lock: Path) -> AsyncIterator[None]:
    """One process at a time; a second one finds the work done."""
    with lock.open("w") as held:
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.1)
        yield


async def download(package: str, scratch: Path, always: Sequence[str] = ()) -> Path:
    for folder in ("lists/partial", "cache/archives/partial", "packages", "root"):
        (scratch / folder).mkdir(parents=True)
    options = [
        f"Dir::State::lists={scratch / 'lists'}",
        f"Dir::Cache={scratch / 'cache'}",
        "Debug::NoLocking=1",
        "APT::Sandbox::User=",
        "Acquire::Languages=none",
    ]
    apt = ["apt-get", "--quiet", *(part for option in options for part in ("-o", option))]
    packages = scratch / "packages"
    try:
        # A unrelated source that does not answer fails `update`, though the packages we want may well be there.
        await output_of(*apt, "update", folder=packages)
    except SourceUnavailable as update_failed:
        failed: SourceUnavailable | None = update_failed
    else:
        failed = None
    try:
        simulated = await output_of(
            *apt, "--simulate", "install", "--no-install-recommends", package, folder=packages
        )
        wanted = [line.split()[1] for line in simulated.splitlines() if line.startswith("Inst ")]
        wanted = [name for name in wanted if not name.startswith(LEFT_OUT)]
        if not wanted:
            raise SourceUnavailable(f"{package} is installed, yet was not found where its package puts it")
        wanted += [name for name in always if name not in wanted]
        await output_of(*apt, "download", *wanted, folder=packages)
    except SourceUnavailable as closed:
        raise closed from failed
    root = scratch / "root"
    for archive in sorted(packages.glob("*.deb")):
        await output_of("dpkg-deb", "--extract", str(archive), str(root), folder=packages)
    return root


def library_path(root: Path) -> str:
    """LD_LIBRARY_PATH for what was unpacked under `root`."""
    folders = [
        str(path) for prefix in ("usr/lib", "lib") for path in sorted(root.glob(f"{prefix}/*-linux-*"))
    ]
    return os.pathsep.join(folders)
