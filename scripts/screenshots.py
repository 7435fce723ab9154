"""Take the pictures of the docs (`./run screenshots`): every page of the dashboard on the night that tests/support
seeds, wide and light, and as on a phone in the dark.

Real servers, a real sidecar, a real browser. Only docs/images/ is written. `--all FOLDER` writes every page in every
width and scheme there instead, to look at, and two of them with the database away.
"""

import argparse
import asyncio
import sys
import tempfile
import uuid
from pathlib import Path

from playwright.async_api import Browser

from dlq_handler.logs import configure_logging
from sandbox.attune import schema
from sandbox.servers import Servers
from tests.support.browser import PHONE, WIDE, Scheme, Tab, a_tab, chromium
from tests.support.eventually import eventually
from tests.support.night_pages import night_pages, trip_brake
from tests.support.night_world import NightWorld, night_world

# Letters that wait while the brake is tripped.
WAITING = 24
IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
# Those that the docs show. The others are only looked at.
SHOWN = ("now", "letters-filtered", "letter", "execution", "workers", "topology", "group", "release-brake")
LOOKS: tuple[tuple[int, Scheme], ...] = ((WIDE, "light"), (PHONE, "dark"))
ALL_LOOKS: tuple[tuple[int, Scheme], ...] = (*LOOKS, (WIDE, "dark"), (PHONE, "light"))


async def take(folder: Path, *, is_all: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="dlq-handler-pictures-") as scratch:
        async with Servers.find() as servers, chromium() as browser:
            name = f"night_{uuid.uuid4().hex[:12]}"
            amqp_url = await servers.rabbitmq.create_vhost(name)
            database_url = await servers.postgresql.create_database(name)
            await schema.install(database_url)
            async with night_world(Path(scratch), servers.rabbitmq, amqp_url, database_url) as world:
                await _photograph(browser, world, folder, is_all=is_all)


async def _photograph(browser: Browser, world: NightWorld, folder: Path, *, is_all: bool) -> None:
    pages = await night_pages(world.store, world.now)
    async with a_tab(browser, world.url) as tab:
        await _settled(tab)
        for name, path in pages.items():
            if not (is_all or name in SHOWN):
                continue
            if name == "release-brake":
                # Without it there is nothing to release. The last of the pages that show what is going on.
                await trip_brake(tab, world, letters=WAITING)
            for look in ALL_LOOKS if is_all else LOOKS:
                await _look(tab, world, path, folder / name, look)
        if is_all:
            # Last: what the pages show from memory.
            await world.database_link.refuse()
            for name in ("now", "letters"):
                for look in ALL_LOOKS:
                    await _look(tab, world, pages[name], folder / f"{name}-from-memory", look)


async def _look(tab: Tab, world: NightWorld, path: str, stem: Path, look: tuple[int, Scheme]) -> None:
    width, scheme = look
    await tab.show(width, scheme)
    if (status := await tab.open(path)) != 200:
        raise RuntimeError(f"{path} answered {status}; {world.sidecar.log_path} says why")
    picture = stem.with_name(f"{stem.name}-{width}-{scheme}.png")
    await tab.page.screenshot(path=picture, full_page=True, animations="disabled")
    print(f"{picture.name}: {picture.stat().st_size // 1024} KB", flush=True)


async def _settled(tab: Tab) -> None:
    """A new sidecar does not know yet which workers are unavailable, and the broker's counts are seconds late."""

    async def is_diagnosed() -> bool:
        await tab.open("/")
        is_named = "worker-python" in await tab.page.title()
        return is_named and "unknown" not in await tab.page.inner_text("#strip")

    await eventually(is_diagnosed, timeout=60, every=0.5)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run screenshots", description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="every page, in every width and scheme")
    arguments = parser.parse_args()
    configure_logging(level="error", format="json")
    folder: Path = arguments.all or IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(folder, is_all=arguments.all is not None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
