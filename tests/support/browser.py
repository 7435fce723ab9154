"""A real Chromium, and tabs that remember what went wrong in them."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal
from unittest.mock import patch
from urllib.parse import urlsplit

from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright

from tests.support.chromium_program import ARGUMENTS, ChromiumProgram
from tests.support.playwright_driver import find_driver_variables

WIDE, PHONE = 1280, 390
HEIGHTS = {WIDE: 900, PHONE: 844}
LEAST_TARGET_PX = 44
Scheme = Literal["light", "dark"]

# All that depends on colours; whatever else axe looks at is the same in the other scheme.
OF_COLOUR = ("color-contrast", "link-in-text-block")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    program = await ChromiumProgram.find()
    # The driver takes its environment from this process when it starts, and by no other way. Chromium is given its own.
    with patch.dict(os.environ, await find_driver_variables()):
        playwright = await async_playwright().start()
    try:
        browser = await playwright.chromium.launch(
            executable_path=program.path, args=list(ARGUMENTS), env=dict(program.environment)
        )
        try:
            yield browser
        finally:
            await browser.close()
    finally:
        await playwright.stop()


@dataclass  # without slots: Playwright keeps marks of its own on whatever holds a handler
class Tab:
    """A page, and all it complained of or asked elsewhere since it was opened."""

    page: Page
    base_url: str
    complaints: list[str] = field(default_factory=list)
    unrelated: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()
    """What a complaint may hold without counting: Chromium itself writes each failed request into the console."""

    def __post_init__(self) -> None:
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        self.page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.base_url).netloc:
            self.unrelated.append(request.url)

    async def open(self, path: str) -> int:
        """Its status. Not until the network is idle: a page with an open stream never is."""
        answer = await self.page.goto(f"{self.base_url}{path}", wait_until="load")
        assert answer is not None, path
        return answer.status

    async def show(self, width: int, scheme: Scheme) -> None:
        await self.page.set_viewport_size({"width": width, "height": HEIGHTS[width]})
        await self.page.emulate_media(color_scheme=scheme)

    def trouble(self) -> list[str]:
        """What it complained of, and forgets."""
        found = [one for one in self.complaints if not any(words in one for words in self.expected)]
        found += [f"asked elsewhere: {url}" for url in self.unrelated]
        self.complaints.clear()
        self.unrelated.clear()
        return found

    async def is_injected(self) -> bool:
        return bool(await self.page.evaluate("'injected' in window"))

    async def overflow(self) -> list[str]:
        """Empty when nothing has to be scrolled sideways; else who sticks out of the page."""
        found: list[str] = await self.page.evaluate(_OVERFLOW)
        return found

    async def small_targets(self) -> list[str]:
        """What a finger would miss: all that can be tapped and is less than LEAST_TARGET_PX high.

        A link in a sentence is as high as its line, as WCAG 2.5.8 allows: one in a paragraph or an item of a list that
        says four words or more besides its links.
        """
        found: list[str] = await self.page.evaluate(_SMALL_TARGETS, LEAST_TARGET_PX)
        return found

    async def barriers(self, only: Sequence[str] = ()) -> list[str]:
        """What axe finds, each with the first places; `only`: these rules."""
        if await self.page.evaluate("typeof axe === 'undefined'"):
            await self.page.evaluate(AXE_SCRIPT)
        options: dict[str, object] = {"resultTypes": ["violations"], "elementRef": False}
        if only:
            options["runOnly"] = {"type": "rule", "values": list(only)}
        found = await self.page.evaluate("options => axe.run(document, options)", options)
        return [
            f"{one['id']}: {one['help']} at {'; '.join(str(node['target']) for node in one['nodes'][:4])}"
            for one in found["violations"]
        ]


_OVERFLOW = """() => {
    const wide = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= wide) return [];
    const right = one => one.getBoundingClientRect().right;
    return [...document.body.querySelectorAll('*')].filter(one => right(one) > wide + 0.5)
        .slice(0, 5).map(one => `${one.tagName}.${one.getAttribute('class') || ''} ${right(one)} > ${wide}`);
}"""

_SMALL_TARGETS = """least => {
    const isInSentence = link => {
        const around = link.closest('p, li');
        if (!around || link.closest('.head, nav') || link.matches('.tap, .button')) return false;
        const said = around.cloneNode(true);
        said.querySelectorAll('a').forEach(one => one.remove());
        return said.textContent.split(/\\s+/).filter(word => /\\w/.test(word)).length >= 4;
    };
    const isShown = one => one.checkVisibility({visibilityProperty: true}) && one.getBoundingClientRect().right > 0;
    return [...document.body.querySelectorAll('a, button, summary, input, select, textarea')]
        .filter(one => isShown(one) && one.getBoundingClientRect().height < least - 0.5)
        .filter(one => !(one.matches('a') && isInSentence(one)))
        .map(one => `${one.tagName} ${(one.textContent || one.name || '').trim().slice(0, 40)}: `
            + `${one.getBoundingClientRect().height} px`);
}"""


@asynccontextmanager
async def a_tab(
    browser: Browser,
    base_url: str,
    *,
    width: int = WIDE,
    scheme: Scheme = "light",
    token: str | None = None,
    has_script: bool = True,
    expected: tuple[str, ...] = (),
) -> AsyncIterator[Tab]:
    """A tab of its own, in a browser that has never been here; with a token it has logged in."""
    context = await browser.new_context(
        viewport={"width": width, "height": HEIGHTS[width]},
        color_scheme=scheme,
        java_script_enabled=has_script,
        locale="en-GB",
        timezone_id="UTC",
    )
    context.set_default_timeout(10_000)
    try:
        tab = Tab(page=await context.new_page(), base_url=base_url, expected=expected)
        if token is not None:
            await log_in(tab, token)
        yield tab
    finally:
        await context.close()


async def log_in(tab: Tab, token: str) -> None:
    await tab.open("/login")
    await tab.page.get_by_label("Token").fill(token)
    await tab.page.get_by_role("button", name="Log in").click()
    await tab.page.wait_for_url(f"{tab.base_url}/")
