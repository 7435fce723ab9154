"""Every page, as a browser shows it: for everybody, on a phone too, in the dark, without a script, whatever a sender
wrote into his messages.
"""

import re
from dataclasses import replace

import pytest
from playwright.async_api import Browser, expect

from dlq_handler.history import events_sql
from dlq_handler.history.event import FLOW_CHANGED, Topic
from dlq_handler.lifecycle import flows_sql
from dlq_handler.lifecycle.flow import Step
from tests.support import night
from tests.support.browser import OF_COLOUR, PHONE, WIDE, Scheme, Tab, a_tab
from tests.support.eventually import eventually
from tests.support.night_pages import night_pages, trip_brake
from tests.support.night_world import TOKENS, NightWorld
from tests.unit.lifecycle.builders import a_flow

pytestmark = pytest.mark.asyncio(loop_scope="session")

LARGEST_FIRST_PAGE = 60 * 1024
# Of whom there is only a row.
LOST_WORKER = 13


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
            faults += [f"{name} {path}: {one}" for one in [*found, *await all_faults_of(tab)]]
    assert not faults, "\n".join(faults)


async def test_the_form_for_a_token_is_whole(browser: Browser, the_night: NightWorld) -> None:
    refused = ("the server responded with a status of 401",)
    async with a_tab(browser, the_night.url, expected=refused) as tab:
        await tab.open("/login")
        assert await all_faults_of(tab) == []
        await tab.page.get_by_label("Token").fill("an-unknown-token")
        await tab.page.get_by_role("button", name="Log in").click()
        await expect(tab.page.get_by_role("alert")).to_contain_text("token is not valid")
        assert await all_faults_of(tab) == []


async def test_the_way_through_an_act_is_whole(browser: Browser, the_night: NightWorld) -> None:
    """From the form, which is there only while the brake is tripped, to what was done."""
    async with a_tab(browser, the_night.url, token=TOKENS["operate"]) as tab:
        await trip_brake(tab, the_night, letters=3)
        assert await all_faults_of(tab) == []
        await tab.page.get_by_label("Comment, for the audit").fill("the worker is really gone")
        await tab.page.get_by_label("For how long").select_option("0")
        button = re.compile(r"^Release brake, decide (at least )?\d+ dead letters$")
        await tab.page.get_by_role("button", name=button).click()
        await expect(tab.page.locator("h1")).to_contain_text("The brake is released")
        assert await all_faults_of(tab) == []


async def test_a_raw_body_is_whole(browser: Browser, the_night: NightWorld) -> None:
    """A hostile one: its lines have no place to break at."""
    async with the_night.store.transaction() as tx:
        letter = await tx.row(
            "SELECT id FROM own.letter WHERE worker_id = :id LIMIT 1", id=night.HOSTILE_WORKER
        )
    assert letter is not None
    async with a_tab(browser, the_night.url, token=TOKENS["operate"]) as tab:
        await tab.open(f"/letters/{letter.id}")
        await tab.page.get_by_role("button", name="Show it unmasked").click()
        await expect(tab.page.get_by_label("Raw body")).to_contain_text("window.injected")
        assert await all_faults_of(tab) == []


async def test_the_steps_of_a_stop_are_shown_while_they_are_taken(
    browser: Browser, the_night: NightWorld
) -> None:
    store, flow = the_night.store, a_flow(id="w99", step=Step.IDLE, worker_id=99, last_error="it waits")
    try:
        async with store.transaction() as tx:
            assert await flows_sql.add(tx, flow)
        async with a_tab(browser, the_night.url, token=TOKENS["read"]) as tab:
            await tab.open("/flows/w99")
            assert await all_faults_of(tab) == []
            steps = tab.page.locator("section[aria-labelledby=steps-title] tbody tr")
            await expect(steps.nth(1)).to_contain_text("waits")
            async with store.transaction() as tx:
                assert await flows_sql.save(tx, replace(flow, step=Step.DRAINED, last_error=None))
                await events_sql.record_event(
                    tx, topic=Topic.FLOWS, kind=FLOW_CHANGED, subject="w99", replica="test"
                )
            await expect(steps.nth(3)).to_contain_text("now")
            await expect(steps.nth(1)).to_contain_text("done")
    finally:
        async with store.transaction() as tx:
            await tx.run("DELETE FROM own.flow WHERE id = 'w99'")


async def test_a_topology_with_a_broken_route_is_complete(browser: Browser, the_night: NightWorld) -> None:
    """The broken route comes first, with the command that repairs it."""
    async with the_night.store.transaction() as tx:
        await tx.run(
            """
            INSERT INTO worker (id, name, worker_type, worker_role, host, status, last_heartbeat, created)
            VALUES (:id, 'worker-lost', 'local', 'action', 'py-4', 'active', now(), now())
            """,
            id=LOST_WORKER,
        )
    try:
        async with a_tab(browser, the_night.url, token=TOKENS["read"]) as tab:

            async def is_told() -> bool:
                await tab.open("/topology")
                first = await tab.page.locator("[data-row]").first.inner_text()
                return f"worker.{LOST_WORKER}.executions" in first and "declare-worker-queue" in first

            await eventually(is_told, timeout=60, every=0.5)
            assert await all_faults_of(tab) == []
    finally:
        await forget_worker(the_night)


async def test_what_changes_leaves_focus_scroll_and_what_was_unfolded(
    browser: Browser, the_night: NightWorld
) -> None:
    """On a page whose only part is exchanged: nothing but the script keeps them."""
    async with the_night.store.transaction() as tx:
        await tx.run(
            """
            INSERT INTO worker (id, name, worker_type, worker_role, host, status, last_heartbeat, created)
            VALUES (:id, 'worker-lost', 'local', 'action', 'py-4', 'active', now() - interval '2 days', now())
            """,
            id=LOST_WORKER,
        )
    try:
        async with a_tab(browser, the_night.url, token=TOKENS["read"], width=PHONE) as tab:
            page = tab.page

            async def is_listed() -> bool:
                await tab.open("/workers")
                return await page.locator("#history").count() == 1

            await eventually(is_listed, timeout=60, every=0.5)
            await expect(page.locator("#live")).to_have_text("live")
            await page.locator("#history > summary").click()
            link = page.locator(f"#worker-{LOST_WORKER}")
            await link.focus()
            scrolled = await page.evaluate("scrollY")
            assert scrolled > 0
            await page.locator("#workers").evaluate("one => one.classList.add('before')")
            await the_night.let_die(1)
            await expect(page.locator("#workers")).not_to_have_class(re.compile("before"), timeout=20_000)
            await expect(page.locator("#history")).to_have_attribute("open", "")
            await expect(link).to_be_focused()
            assert await page.evaluate("scrollY") == scrolled
            assert tab.trouble() == []
    finally:
        await forget_worker(the_night)


async def forget_worker(the_night: NightWorld) -> None:
    async with the_night.store.transaction() as tx:
        await tx.run("DELETE FROM worker WHERE id = :id", id=LOST_WORKER)


async def all_faults_of(tab: Tab) -> list[str]:
    """Of the page that is open, in both widths and both schemes."""
    found: list[str] = []
    for width in (WIDE, PHONE):
        found += await faults_of(tab, width, "light")
        found += await faults_of(tab, width, "dark", only=OF_COLOUR)
    if not await tab.page.title() or await tab.page.locator("h1").count() != 1:
        found.append("wants a title, and one heading above all others")
    return [*found, *tab.trouble()]


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
        "/letters/999999": (404, "No such record. Records are kept for 24 h; it may have been deleted."),
        "/executions/999999": (404, "No such record. Records are kept for 24 h"),
        "/workers/999999": (404, "No such record. Records are kept for 7 d"),
        "/groups/ffffffffff": (404, "No such record. Records are kept for 31 d"),
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
    """A sidecar that has just started does not know yet which workers are unavailable."""

    async def is_told() -> bool:
        await tab.open("/")
        return night.WORKERS[night.PYTHON] in await tab.page.title()

    await eventually(is_told, timeout=60, every=0.5)
