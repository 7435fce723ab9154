"""Every page, as a browser shows it: for everybody, on a phone too, in the dark, without a script, whatever a sender
wrote into his messages.
"""

import pytest
from playwright.async_api import Browser

from tests.support import night
from tests.support.browser import OF_COLOUR, PHONE, WIDE, Scheme, Tab, a_tab
from tests.support.eventually import eventually
from tests.support.night_pages import night_pages
from tests.support.night_world import TOKENS, NightWorld

pytestmark = pytest.mark.asyncio(loop_scope="session")

LARGEST_FIRST_PAGE = 60 * 1024


async def test_every_page_is_whole_in_both_widths_and_both_schemes(
    browser: Browser, the_night: NightWorld
) -> None:
    """No barrier that axe knows, nothing to scroll sideways, nothing that a finger misses on a phone, no complaint in
    the console, nothing asked elsewhere.
    """
    faults: list[str] = []
    pages = await night_pages(the_night.store, the_night.now)
    async with a_tab(browser, the_night.url, token=TOKENS["operate"]) as tab:
        await until_gone_is_known(tab)
        for name, path in pages.items():
            status = await tab.open(path)
            found = [f"answered {status}"] if status != 200 else []
            for width in (WIDE, PHONE):
                found += await faults_of(tab, width, "light")
                found += await faults_of(tab, width, "dark", only=OF_COLOUR)
            if not await tab.page.title() or await tab.page.locator("h1").count() != 1:
                found.append("wants a title, and one heading above all others")
            faults += [f"{name} {path}: {one}" for one in [*found, *tab.trouble()]]
    assert not faults, "\n".join(faults)


async def faults_of(tab: Tab, width: int, scheme: Scheme, *, only: tuple[str, ...] = ()) -> list[str]:
    await tab.show(width, scheme)
    found = [*await tab.barriers(only), *(f"sticks out: {one}" for one in await tab.overflow())]
    if width == PHONE:
        found += [f"missed by a finger: {one}" for one in await tab.small_targets()]
    return [f"{width} {scheme}: {one}" for one in found]


async def test_every_page_reads_without_a_script(browser: Browser, the_night: NightWorld) -> None:
    faults: list[str] = []
    pages = await night_pages(the_night.store, the_night.now)
    async with a_tab(
        browser, the_night.url, token=TOKENS["operate"], width=PHONE, scheme="dark", has_script=False
    ) as tab:
        for name, path in pages.items():
            status = await tab.open(path)
            text = await tab.page.inner_text("main")
            if status != 200 or len(text) < 40 or not await tab.page.locator("h1").is_visible():
                faults.append(f"{name} {path}: {status}, {len(text)} characters")
            faults += [f"{name}: {one}" for one in tab.trouble()]
    assert not faults, "\n".join(faults)


async def test_what_a_sender_wrote_is_shown_and_never_run(browser: Browser, the_night: NightWorld) -> None:
    """In bodies, headers, action refs and a worker's name."""
    async with the_night.store.transaction() as tx:
        letters = await tx.rows(
            "SELECT id, group_id, execution_id FROM own.letter WHERE worker_id = :id ORDER BY id",
            id=night.HOSTILE_WORKER,
        )
    paths = [f"/letters/{one.id}" for one in letters]
    paths += [f"/executions/{letters[0].execution_id}", f"/groups/{letters[0].group_id}"]
    paths += ["/", "/workers", f"/workers/{night.HOSTILE_WORKER}", "/topology", "/groups"]
    paths += [
        f"/letters?group={letters[0].group_id}",
        f"/letters?search={night.SCRIPT}&action={night.SCRIPT}",
    ]
    seen = ""
    faults: list[str] = []
    async with a_tab(browser, the_night.url, token=TOKENS["operate"], width=PHONE) as tab:
        for path in paths:
            status = await tab.open(path)
            for details in await tab.page.locator("details:not([open]) > summary").all():
                await details.click()
            seen += await tab.page.inner_text("body")
            if status != 200 or await tab.is_injected():
                faults.append(f"{path}: {status}, ran: {await tab.is_injected()}")
            faults += [f"{path}: sticks out: {one}" for one in await tab.overflow()]
            faults += [f"{path}: {one}" for one in tab.trouble()]
    assert not faults, "\n".join(faults)
    assert night.SCRIPT in seen
    assert "onerror=" in seen


async def test_what_is_not_there_says_so_in_the_same_shell(browser: Browser, the_night: NightWorld) -> None:
    cases = {
        "/no/such/page": (404, "no such page"),
        "/letters/999999": (404, "999999"),
        f"/letters/{night.LAST_SWEPT_LETTER}": (410, "swept on"),
        "/executions/999999": (404, "999999"),
        "/workers/999999": (404, "999999"),
        "/groups/ffffffffff": (404, "ffffffffff"),
    }
    # Chromium itself notes every answer that is no success.
    async with a_tab(
        browser, the_night.url, token=TOKENS["operate"], expected=("the server responded with a status of",)
    ) as tab:
        for path, (status, words) in cases.items():
            assert await tab.open(path) == status, path
            assert words in (await tab.page.inner_text("main")).replace("\n", " "), path
            assert await tab.page.get_by_role("link", name="Letters").first.is_visible(), path
            for width in (WIDE, PHONE):
                assert await faults_of(tab, width, "light") == [], path
            assert tab.trouble() == [], path


async def test_the_first_page_is_small(browser: Browser, the_night: NightWorld) -> None:
    async with a_tab(browser, the_night.url, token=TOKENS["read"]) as tab:
        for path in ("/", "/?span=24h"):
            answer = await tab.page.goto(f"{the_night.url}{path}")
            assert answer is not None
            assert len(await answer.body()) <= LARGEST_FIRST_PAGE, path


async def until_gone_is_known(tab: Tab) -> None:
    """A sidecar that has just begun cannot tell yet who is gone."""

    async def is_told() -> bool:
        await tab.open("/")
        return night.WORKERS[night.PYTHON] in await tab.page.title()

    await eventually(is_told, timeout=60, every=0.5)
