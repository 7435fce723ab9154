"""Run an image's programs as a container engine would, by namespaces and chroot.

The root read-only, /proc its own, four devices, no right but those of the image's user, each command process 1 of its
own. The network is the machine's.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox.servers.guardian import children_of
from scripts.image_check.failed import CheckFailed
from scripts.image_check.image import Image

CONFIG_PLACE = "/etc/dlq-handler/config.yaml"
ENTER = """\
set -eu
root=$1 config=$2 place=$3 ids=$4; shift 4
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 dev "$root/dev"
for device in null zero random urandom; do
    : > "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mount -o remount,ro "$root/dev"
mount --bind "$config" "$root$place"
mount -o remount,bind,ro "$root$place"
mount -o remount,bind,ro "$root"
exec chroot "$root" /usr/bin/setpriv --reuid="${ids%:*}" --regid="${ids#*:}" --clear-groups \
    --no-new-privs --inh-caps=-all --bounding-set=-all /usr/bin/env -i "$@"
"""


class Container:
    def __init__(self, image: Image, root: Path, *, config: Path) -> None:
        self.image = image
        self.environment = image.environment | {"ATTUNE_CONFIG": CONFIG_PLACE}
        self._root, self._config = root, config
        self._log = root.parent / "container.log"
        # As an engine does: a place to mount on is made before the root becomes read-only.
        place = root / CONFIG_PLACE.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.subprocess.Process]:
        with self._log.open("wb") as log:
            process = await self._enter(self.image.command, output=log.fileno())
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()  # and with it, by --kill-child, all that is in there
                await process.wait()

    async def healthy(self, process: asyncio.subprocess.Process, within_seconds: float) -> None:
        end = time.monotonic() + within_seconds
        while True:
            code, said = await self.health()
            if code == 0:
                return
            if process.returncode is not None:
                raise CheckFailed(f"it ended with {process.returncode}: {self.log()}")
            if time.monotonic() > end:
                raise CheckFailed(f"not healthy after {within_seconds} s: {said}; its log: {self.log()}")
            await asyncio.sleep(0.2)

    async def health(self) -> tuple[int, str]:
        return await self._output_of(self.image.health_command, self.image.health_timeout_seconds)

    async def stopped(self, process: asyncio.subprocess.Process, within_seconds: float) -> int:
        """Its exit code. The signal goes to process 1 in there, as an engine sends it."""
        for first in children_of(process.pid):
            os.kill(first, self.image.stop_signal)
        try:
            async with asyncio.timeout(within_seconds):
                return await process.wait()
        except TimeoutError:
            raise CheckFailed(f"it still runs {within_seconds} s later: {self.log()}") from None

    async def refuse_rights(self) -> None:
        ids = f"{self.image.uid} {self.image.gid} {self.image.gid}"
        script = 'echo "$(id -u) $(id -g) $(id -G)"; for at in / /tmp /opt/dlq-handler /dev; do touch $at/x; done; true'
        _, said = await self._output_of(["sh", "-c", script], 30)
        if said.splitlines()[0] != ids or said.count("Read-only file system") != 4:
            raise CheckFailed(f"wanted were the user {ids} and four read-only folders; it says: {said}")

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    async def _output_of(self, command: list[str], timeout: float) -> tuple[int, str]:
        """Exit code and what it printed; one that takes too long has failed, as an engine counts it."""
        process = await self._enter(command, output=asyncio.subprocess.PIPE)
        try:
            async with asyncio.timeout(timeout):
                said, _ = await process.communicate()
        except TimeoutError:
            return 124, f"{' '.join(command)} took longer than {timeout:g} s"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, said.decode(errors="replace").strip()

    async def _enter(self, command: list[str], *, output: int) -> asyncio.subprocess.Process:
        namespaces = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        ids = f"{self.image.uid}:{self.image.gid}"
        places = [str(self._root), str(self._config), CONFIG_PLACE, ids]
        return await asyncio.create_subprocess_exec(
            *namespaces, "sh", "-c", ENTER, "sh", *places, *variables, *command,
            stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=asyncio.subprocess.STDOUT, cwd="/",
        )  # fmt: skip
