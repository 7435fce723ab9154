"""The base that stands for python:3.11-slim-bookworm, as no registry is asked: Debian 12 by debootstrap, with python3.

Made once, into the user's cache folder: beside its place and renamed into it, so that a half-made one is never used.
"""

import os
import shutil
import tempfile
from pathlib import Path

from sandbox.server_programs import packages
from sandbox.server_programs.program import output_of
from scripts.image_check.buildah import Buildah

BASE = "localhost/dlq-handler-base:debian-12"
SUITE = "bookworm"
PACKAGES = "ca-certificates,python3,python3-venv"


async def base_store(buildah: Buildah) -> Path:
    """The image store that holds it."""
    final = packages.cache_folder() / f"image-base-{SUITE}"
    async with packages.turn(final.with_suffix(".lock")):
        if not final.exists():
            with tempfile.TemporaryDirectory(prefix=".image-base-", dir=final.parent) as scratch:
                store = Path(scratch) / "store"
                await buildah.writing(store).import_folder(await debian(Path(scratch)), BASE)
                store.rename(final)
    return final


async def debian(scratch: Path) -> Path:
    root = scratch / "root"
    options = ["--variant=minbase", f"--include={PACKAGES}", SUITE, str(root)]
    if program := shutil.which("debootstrap"):
        await output_of(program, *options)
    else:
        unpacked = await packages.unpacked("debootstrap")
        scripts = os.environ | {"DEBOOTSTRAP_DIR": str(unpacked / "usr/share/debootstrap")}
        await output_of("sh", str(unpacked / "usr/sbin/debootstrap"), *options, environment=scripts)
    for leftovers in ("var/cache/apt", "var/lib/apt/lists", "var/log"):
        shutil.rmtree(root / leftovers)
    return root
