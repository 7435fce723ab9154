"""An open page follows outages and events without a reload."""

import re

import pytest
from playwright.async_api import Browser, Page, expect

from tests.support import night
from tests.support.browser import PHONE, a_tab
from tests.support.eventually import eventually
from tests.support.night_world import TOKENS, NightWorld
from tests.support.tcp_proxy import TcpProxy
from tests.support.ui import a_ui_world, listening

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Chromium itself notes every request that fails.
LOST = ("net::ERR_", "the server responded with a status of 503")

AGED = re.compile(r"Database unreachable since \d\d:\d\d; figures are from \d\d:\d\d:\d\d")


async def test_a_lost_stream_is_said_and_repaired_by_itself(browser: Browser, the_night: NightWorld) -> None:
    async with (
        TcpProxy.to(the_night.url) as wire,
        a_tab(browser, wire.url, width=PHONE, token=TOKENS["read"], expected=LOST) as tab,
    ):
        await is_live(tab.page)
        figures = await tab.page.inner_text("#groups")
        await wire.refuse()
        await expect(tab.page.locator("#live")).to_have_text(re.compile(r"^stale \d+ s$"))
        # No state stays green without an answer of the sidecar; not in the title of the tab either.
        gone = tab.page.get_by_role("alert").filter(has_text="No answer from dlq-handler since")
        await expect(gone).to_be_visible(timeout=30_000)
        await expect(tab.page.locator("main.old")).to_be_visible()
        assert (await tab.page.title()).startswith("? ")
        assert await tab.page.inner_text("#groups") == figures
        assert await tab.barriers() == []
        await wire.heal()
        await is_live(tab.page)
        await expect(gone).to_be_hidden()
        await expect(tab.page.locator("main.old")).to_have_count(0)
        assert not (await tab.page.title()).startswith("? ")
        assert tab.trouble() == []


async def test_a_frozen_stream_is_said_and_asked_for_anew(browser: Browser, the_night: NightWorld) -> None:
    """Nothing is closed and nothing fails: only that nothing comes says that it is frozen."""
    world = await a_ui_world(the_night.store, alive_every_seconds=2.0)
    async with (
        listening(world) as url,
        TcpProxy.to(url) as wire,
        a_tab(browser, wire.url, expected=LOST) as tab,
    ):
        await tab.open("/")
        await is_live(tab.page)
        figures = await tab.page.inner_text("#groups")
        wire.freeze()
        links = wire.accepted
        await expect(tab.page.locator("#live")).to_have_text(re.compile(r"^stale \d+ s$"), timeout=20_000)
        await eventually(lambda: wire.accepted > links)
        assert await tab.page.inner_text("#groups") == figures
        await wire.heal()
        await is_live(tab.page)
        assert tab.trouble() == []


async def test_new_letters_are_shown_on_request(browser: Browser, the_night: NightWorld) -> None:
    """Rows never jump under a finger. The letters are real ones: published, dead, decided."""
    async with (
        a_tab(browser, the_night.url, token=TOKENS["read"]) as tab,
        a_tab(browser, the_night.url, token=TOKENS["read"]) as now,
    ):
        await tab.open("/letters")
        await is_live(tab.page)
        await is_live(now.page)
        rows = await tab.page.locator("[data-row]").all_inner_texts()
        await now.page.locator("#checks summary").click()
        await the_night.let_die(3)
        show = tab.page.get_by_role("link", name="3 new, show")
        await expect(show).to_be_visible()
        assert await tab.page.locator("[data-row]").all_inner_texts() == rows
        await show.click()
        await expect(tab.page.locator("[data-row]").nth(3)).to_contain_text(
            rows[0].split("\t")[1].split("\n")[0]
        )
        # The other tab has drawn what changed, and left what was unfolded as it was.
        await expect(now.page.locator("#groups")).to_contain_text("worker.9.executions")
        await expect(now.page.locator("#checks")).to_have_attribute("open", "")
        assert [*tab.trouble(), *now.trouble()] == []


async def test_an_open_page_reports_the_loss_and_the_return_of_the_database(
    browser: Browser, the_night: NightWorld
) -> None:
    """Without a reload, although the events that it waits for come from that same database."""
    async with (
        a_tab(browser, the_night.url, token=TOKENS["read"], expected=LOST) as now,
        a_tab(browser, the_night.url, token=TOKENS["read"], expected=LOST) as workers,
        a_tab(browser, the_night.url, token=TOKENS["read"], expected=LOST) as letters,
    ):
        await workers.open("/workers")
        await letters.open("/letters")
        tabs = (now, workers, letters)
        for tab in tabs:
            await is_live(tab.page)
        await the_night.database_link.refuse()
        try:
            for tab in tabs:
                await expect(tab.page.get_by_text(AGED)).to_be_visible(timeout=20_000)
            await expect(now.page.locator("#groups.old")).to_contain_text("worker.7.executions")
            # The stream repeats the event while the outage lasts: the page need not receive the first one.
            part = now.page.locator("#strip a", has_text="Database")
            await expect(part).to_contain_text("✕", timeout=20_000)
        finally:
            await the_night.database_link.heal()
        for tab in tabs:
            await expect(tab.page.get_by_text(AGED)).to_have_count(0, timeout=20_000)
            await is_live(tab.page)
            assert tab.trouble() == []
        await expect(now.page.locator("h1")).to_contain_text(night.WORKERS[night.PYTHON], timeout=20_000)
        await expect(now.page.locator("#groups.old")).to_have_count(0)


async def is_live(page: Page) -> None:
    await expect(page.locator("#live")).to_have_text("live", timeout=20_000)
