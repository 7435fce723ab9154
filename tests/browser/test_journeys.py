"""What people do with the dashboard, click by click and key by key."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Browser, expect

from tests.support import night
from tests.support.browser import PHONE, a_tab
from tests.support.night_world import TOKENS, NightWorld

pytestmark = pytest.mark.asyncio(loop_scope="session")

PYTHON = night.WORKERS[night.PYTHON]


async def test_a_paged_person_gets_from_the_diagnosis_to_one_execution_on_a_phone(
    browser: Browser, the_night: NightWorld
) -> None:
    async with a_tab(browser, the_night.url, width=PHONE, scheme="dark", token=TOKENS["read"]) as tab:
        page = tab.page
        await expect(page.locator("h1")).to_contain_text(
            f"{PYTHON} (7) is unavailable since ", timeout=30_000
        )
        assert PYTHON in await page.title()
        await page.get_by_role("link", name=f"Worker unavailable: {PYTHON}").click()
        await expect(page.locator("h1")).to_have_text(f"Worker unavailable: {PYTHON}")
        await page.locator("[data-row] a").first.click()
        await expect(page.locator("h1")).to_contain_text("Expired after 5 min in worker.7.executions")
        await expect(
            page.get_by_role("list", name="The way of this letter").get_by_role("listitem")
        ).to_have_count(5)
        await page.get_by_role("link", name=re.compile(r"^Execution \d+$")).click()
        await expect(page.locator("main")).to_contain_text(
            "execution.completed published, confirmed by the broker"
        )
        await page.get_by_role("link", name=PYTHON).click()
        await expect(page.locator("main")).to_contain_text("no clean stop")
        assert tab.trouble() == []


async def test_login_leads_back_to_the_page_that_was_asked_for(
    browser: Browser, the_night: NightWorld
) -> None:
    async with a_tab(browser, the_night.url) as tab:
        page = tab.page
        await tab.open("/letters?reason=maxlen")
        assert urlsplit(page.url).path == "/login"
        assert PYTHON not in await page.content()
        await page.get_by_label("Token").fill("an-unknown-token")
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("alert")).to_contain_text("token is not valid")
        await page.get_by_label("Token").fill(TOKENS["read"])
        await page.get_by_role("button", name="Log in").click()
        await page.wait_for_url(f"{the_night.url}/letters?reason=maxlen")
        [cookie] = await page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert TOKENS["read"] not in cookie["value"]
        assert tab.trouble() == []


async def test_filters_are_in_the_address_and_come_off_one_by_one(
    browser: Browser, the_night: NightWorld
) -> None:
    async with a_tab(browser, the_night.url, token=TOKENS["read"], has_script=False) as tab:
        page = tab.page
        await tab.open("/letters")
        await page.get_by_label("Reason").select_option("maxlen")
        await page.get_by_label("Outcome").select_option("failed")
        await page.get_by_role("button", name="Show").click()
        asked = parse_qs(urlsplit(page.url).query)
        assert (asked["reason"], asked["outcome"]) == (["maxlen"], ["failed"])
        await expect(page.locator("[data-row]")).to_have_count(9)
        await page.get_by_role("link", name=re.compile("Remove the filter outcome", re.IGNORECASE)).click()
        await expect(page.locator("[data-row]")).to_have_count(18)
        await expect(page.locator(".cli").last).to_contain_text("letters list --reason maxlen")
        await page.get_by_role("link", name=re.compile("Remove the filter reason", re.IGNORECASE)).click()
        await expect(page.locator("[data-row]")).to_have_count(50)


async def test_the_keys_lead_everywhere(browser: Browser, the_night: NightWorld) -> None:
    async with a_tab(browser, the_night.url, token=TOKENS["read"]) as tab:
        page = tab.page
        await page.keyboard.type("gl")
        await page.wait_for_url(f"{the_night.url}/letters")
        await page.keyboard.press("/")
        await expect(page.locator("#search")).to_be_focused()
        await page.keyboard.press("Escape")
        for key, row in (("j", 0), ("j", 1), ("k", 0)):
            await page.keyboard.press(key)
            await expect(page.locator("[data-row]").nth(row).locator("a").first).to_be_focused()
        await page.keyboard.press("Enter")
        await page.wait_for_url(re.compile(r"/letters/\d+$"))
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        for keys, path in (("gw", "/workers"), ("gt", "/topology"), ("gn", "/")):
            await page.keyboard.type(keys)
            await page.wait_for_url(f"{the_night.url}{path}")
        # Before anything else a key reaches the content itself.
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        assert tab.trouble() == []
