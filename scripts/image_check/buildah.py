"""Debian's buildah: the one of this machine, or unpacked from its packages.

Chroot isolation, and plain folders as layers: both work wherever one is root.
"""

import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from sandbox.server_programs import packages
from sandbox.server_programs.program import output_of
from scripts.image_check.lent_pip import LentPip

NAME = "localhost/dlq-handler:image-check"
# buildah starts itself again with an empty environment, so that no LD_LIBRARY_PATH reaches it. A cache of libraries
# that knows the unpacked ones does, in a private mount namespace.
WITH_LIBRARIES = 'mount --bind "$0" /etc/ld.so.cache && exec "$@"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Buildah:
    program: tuple[str, ...]
    policy: str
    scratch: Path
    store: Path
    reads: Path | None = None
    """Another store, whose images it can use and does not change."""

    @classmethod
    async def find(cls, scratch: Path) -> Self:
        store = scratch / "store"
        if installed := shutil.which("buildah"):
            return cls(
                program=(installed,), policy="/etc/containers/policy.json", scratch=scratch, store=store
            )
        root = await packages.unpacked("buildah")
        libraries = await _library_cache(root, scratch)
        program = (
            *("unshare", "--mount", "sh", "-c", WITH_LIBRARIES, str(libraries)),
            str(root / "usr/bin/buildah"),
            f"--registries-conf={root}/etc/containers/registries.conf",
        )
        return cls(program=program, policy=f"{root}/etc/containers/policy.json", scratch=scratch, store=store)

    def reading(self, store: Path) -> Self:
        return replace(self, reads=store)

    def writing(self, store: Path) -> Self:
        return replace(self, store=store)

    async def import_folder(self, folder: Path, name: str) -> None:
        (self.scratch / "Import").write_text("FROM scratch\nADD . /\n")
        await self._bud(folder, "--file", str(self.scratch / "Import"), "--tag", name)

    async def build(self, context: Path, *, base: str, pip: LentPip) -> dict[str, Any]:
        """What the image says about itself."""
        conf = self.scratch / "pip.conf"
        conf.write_text(pip.conf)
        lent = [f"--volume={path}:{path}:ro" for path in pip.paths]
        secret = f"--secret=id=pip,src={conf}"
        await self._bud(context, f"--build-arg=BASE={base}", secret, *lent, "--tag", NAME)
        inspected: dict[str, Any] = json.loads(await self._run("inspect", "--type=image", NAME))
        return inspected

    async def mounted(self, name: str) -> Path:
        """The root folder of a new container of that image."""
        container = await self._run("from", f"--signature-policy={self.policy}", name)
        return Path((await self._run("mount", container.strip())).strip())

    async def _bud(self, context: Path, *options: str) -> None:
        # The Docker format: only it has HEALTHCHECK.
        how = ["--isolation=chroot", "--layers=false", "--format=docker", f"--signature-policy={self.policy}"]
        await self._run("bud", *how, *options, str(context))

    async def _run(self, command: str, *arguments: str) -> str:
        reads = [f"--storage-opt=vfs.imagestore={self.reads}"] if self.reads else []
        where = ["--storage-driver=vfs", f"--root={self.store}", f"--runroot={self.scratch}/run", *reads]
        return await output_of(*self.program, *where, command, *arguments)


async def _library_cache(root: Path, scratch: Path) -> Path:
    folders = packages.library_path(root).split(os.pathsep)
    (scratch / "ld.so.conf").write_text("\n".join(["include /etc/ld.so.conf", *folders, ""]))
    cache = scratch / "ld.so.cache"
    await output_of("/sbin/ldconfig", "-X", "-C", str(cache), "-f", str(scratch / "ld.so.conf"))
    return cache
