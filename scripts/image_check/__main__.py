"""Build the image from the Dockerfile and run it, without a container engine (`./run image-check`; root, Debian).

Built by Debian's buildah, unpacked and not installed, on a base that debootstrap makes; both stay in the user's cache
folder. Run as a plain user on a read-only root, as process 1 of its own, with the image's own command, environment,
health check and stop signal, against private servers. Everything else of a run is removed at its end. What it cannot
show is printed last, so that no reader mistakes it for a container engine.
"""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx

from sandbox.attune import schema
from sandbox.server_programs.errors import SourceUnavailable
from sandbox.servers import NoServer, PrivateServers
from sandbox.servers.ports import free_port
from scripts.image_check.base_image import BASE, base_store
from scripts.image_check.buildah import Buildah
from scripts.image_check.container import Container
from scripts.image_check.failed import CheckFailed
from scripts.image_check.image import Image
from scripts.image_check.lent_pip import LentPip

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config.docker.yaml"
HEALTHY_WITHIN_SECONDS = 60
ENDS_WITHIN_SECONDS = 25  # grace.shutdown_seconds of that file

NOT_SHOWN = """\
not shown by this: python:3.11-slim-bookworm as the base (it was Debian 12 with Debian's Python), BuildKit, a network
namespace, cgroup limits, a seccomp profile, a runtime that acts upon the health check"""


async def check() -> None:
    with tempfile.TemporaryDirectory(prefix="dlq-handler-image-") as scratch:
        folder = Path(scratch)
        async with step("buildah"):
            buildah = await Buildah.find(folder)
        async with step("base: debootstrap's Debian with python3"):
            buildah = buildah.reading(await base_store(buildah))
        async with step("build from the Dockerfile"):
            pip = await LentPip.of_this_machine()
            image = Image(await buildah.build(ROOT, base=BASE, pip=pip))
        async with step("nothing of the build is left in it"):
            root = await buildah.mounted(image.name)
            image.refuse_traces(root, pip)
        async with AsyncExitStack() as closing:
            async with step("private servers"):
                servers = await closing.enter_async_context(PrivateServers.launch(durable=False))
                await schema.install(servers.postgresql.url)
            await run(Container(image, root, config=CONFIG), servers)


async def run(container: Container, servers: PrivateServers) -> None:
    port = free_port()
    environment = {
        "ATTUNE__DATABASE__URL": servers.postgresql.url,
        "ATTUNE__MESSAGE_QUEUE__URL": servers.rabbitmq.amqp_url,
        "ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL": servers.rabbitmq.management_url,
        "ATTUNE__DLQ_HANDLER__HTTP__PORT": str(port),
        "ATTUNE__DLQ_HANDLER__UI__PORT": "0",
    }
    container.environment |= environment
    async with step("a plain user on a read-only root"):
        await container.refuse_rights()
    async with container.running() as process:
        async with step("its HEALTHCHECK passes"):
            await container.healthy(process, HEALTHY_WITHIN_SECONDS)
        async with step("it is ready: broker, consumer, database, schema"):
            await ready(port)
        async with step(f"{container.image.stop_signal.name} ends it with exit code 0"):
            code = await container.stopped(process, ENDS_WITHIN_SECONDS)
            if code != 0:
                raise CheckFailed(f"it ended with {code}: {container.log()}")
    async with step("its HEALTHCHECK fails now that it has ended"):
        code, said = await container.health()
        if code != 1:
            raise CheckFailed(f"exit code {code}: {said}")


async def ready(port: int) -> None:
    answer = "no answer"
    end = time.monotonic() + HEALTHY_WITHIN_SECONDS
    async with httpx.AsyncClient(trust_env=False) as client:
        while time.monotonic() < end:
            try:
                response = await client.get(f"http://127.0.0.1:{port}/readyz")
            except httpx.TransportError as error:
                answer = repr(error)
            else:
                if response.status_code == 200:
                    return
                answer = response.text
            await asyncio.sleep(0.1)
    raise CheckFailed(f"/readyz: {answer}")


@asynccontextmanager
async def step(what: str) -> AsyncIterator[None]:
    began = time.monotonic()
    print(f"image-check: {what} ...", flush=True)
    yield
    print(f"image-check: {what}: ok ({time.monotonic() - began:.1f} s)", flush=True)


def main() -> int:
    if os.geteuid() != 0:
        print(
            "./run image-check: needs root, to build and run the image in namespaces of its own",
            file=sys.stderr,
        )
        return 77
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # whatever was started ends with us in good order
    try:
        asyncio.run(check())
    except (CheckFailed, SourceUnavailable, NoServer) as failed:
        print(f"./run image-check: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(NOT_SHOWN)
    return 0


if __name__ == "__main__":
    sys.exit(main())
