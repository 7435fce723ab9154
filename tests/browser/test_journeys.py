"""What people do with the dashboard, click by click and key by key."""

import re
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Browser, expect

from tests.support import night
from tests.support.browser import PHONE, a_tab, log_in
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
        await page.get_by_role("link", name=f"Worker gone: {PYTHON}").click()
        await expect(page.locator("h1")).to_have_text(f"Worker gone: {PYTHON}")
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
        await expect(page.locator("main")).to_contain_text("vanished")
        assert tab.trouble() == []


async def test_whoever_follows_a_link_is_asked_in_and_led_on(browser: Browser, the_night: NightWorld) -> None:
    async with a_tab(browser, the_night.url) as tab:
        page = tab.page
        await tab.open("/letters?reason=maxlen")
        assert urlsplit(page.url).path == "/login"
        assert PYTHON not in await page.content()
        await page.get_by_label("Token").fill("not-a-token-of-anybody")
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("alert")).to_contain_text("no token of ours")
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


async def test_pages_of_letters_lead_back_to_where_one_came_from(
    browser: Browser, the_night: NightWorld
) -> None:
    async with a_tab(browser, the_night.url, token=TOKENS["read"]) as tab:
        page = tab.page
        await tab.open("/letters?reason=expired")
        first = await page.locator("[data-row] a").first.get_attribute("href")
        await page.get_by_role("link", name="older").click()
        await expect(page.locator("[data-row]")).to_have_count(50)
        assert await page.locator("[data-row] a").first.get_attribute("href") != first
        await page.get_by_role("link", name="newer").click()
        await expect(page.locator("[data-row] a").first).to_have_attribute("href", first or "")
        assert parse_qs(urlsplit(page.url).query)["reason"] == ["expired"]
        # An execution's number, as it stands in somebody's message: one finds its letter by it.
        await page.get_by_label("Id of a letter").fill(str(night.FIRST_EXECUTION + 100))
        await page.keyboard.press("Enter")
        await expect(page.locator("[data-row]")).to_have_count(1)
        assert tab.trouble() == []


async def test_a_release_is_confirmed_with_a_reason_and_recorded_without_a_script(
    browser: Browser, the_night: NightWorld
) -> None:
    comment = f"planned work {night.SCRIPT}"
    async with a_tab(browser, the_night.url, token=TOKENS["operate"], has_script=False) as tab:
        page = tab.page
        await _trip(the_night, "five thousand in a minute")
        await tab.open("/brake/release")
        await page.get_by_label("Comment").fill(comment)
        await page.get_by_label("For how long").select_option("0")
        await page.get_by_role("button", name="Release brake").click()
        await expect(page.locator("h1")).to_contain_text("The brake is released")
        await page.get_by_role("link", name="In the audit").click()
        row = page.locator("tbody tr").first
        await expect(row).to_contain_text("ada")
        await expect(row).to_contain_text(comment)


async def test_who_may_only_read_sees_which_role_may_act(browser: Browser, the_night: NightWorld) -> None:
    async with a_tab(browser, the_night.url, token=TOKENS["read"]) as tab:
        await _trip(the_night, "five thousand in a minute")
        await tab.open("/brake/release")
        await expect(tab.page.locator("main")).to_contain_text("needs the role operate")
        assert await tab.page.locator("main form").count() == 0
        await _untrip(the_night)
        assert tab.trouble() == []


async def test_what_changed_since_the_page_was_loaded_is_not_acted_upon(
    browser: Browser, the_night: NightWorld
) -> None:
    refused = ("the server responded with a status of 409",)
    async with a_tab(browser, the_night.url, token=TOKENS["operate"], expected=refused) as tab:
        await _trip(the_night, "five thousand in a minute")
        await tab.open("/brake/release")
        await tab.page.get_by_label("Comment, for the audit").fill("the workers are really gone")
        await _trip(the_night, "and once more")
        await tab.page.get_by_role("button", name="Release brake").click()
        await expect(tab.page.locator("main")).to_contain_text("Nothing was done")
        async with the_night.store.transaction() as tx:
            row = await tx.row("SELECT released_at FROM own.brake")
            assert row is not None
            assert row.released_at is None
        await _untrip(the_night)
        assert tab.trouble() == []


async def _trip(the_night: NightWorld, explanation: str) -> None:
    async with the_night.store.transaction() as tx:
        await tx.run(
            """
            UPDATE own.brake SET tripped_at = clock_timestamp(), hold_until = now() + interval '1 hour',
                   explanation = :explanation, tripped_by = 'sidecar-1', released_at = NULL
            """,
            explanation=explanation,
        )


async def _untrip(the_night: NightWorld) -> None:
    async with the_night.store.transaction() as tx:
        await tx.run(
            "UPDATE own.brake SET tripped_at = NULL, hold_until = NULL, explanation = NULL, tripped_by = NULL"
        )


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


async def test_a_link_with_a_time_shows_that_hour_and_stays_there(
    browser: Browser, the_night: NightWorld
) -> None:
    """Before the first message of the worker that is gone had expired, and after."""
    async with a_tab(browser, the_night.url, token=TOKENS["read"]) as tab:
        for minutes, is_in_it in ((29, False), (10, True)):
            at = (the_night.now - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
            await tab.open(f"/?at={at}")
            groups = await tab.page.inner_text("#groups")
            assert (PYTHON in groups) is is_in_it, (minutes, groups)
            await expect(tab.page.locator("#live")).to_have_text("paused")
        assert tab.trouble() == []


async def test_a_session_of_another_browser_is_none_of_ours(browser: Browser, the_night: NightWorld) -> None:
    async with a_tab(browser, the_night.url) as tab:
        await tab.page.context.add_cookies(
            [{"name": "dlq_handler_session", "value": "ada|99999999999|salt|forged", "url": the_night.url}]
        )
        await tab.open("/audit")
        assert urlsplit(tab.page.url).path == "/login"
        await log_in(tab, TOKENS["operate"])
        assert tab.trouble() == []
