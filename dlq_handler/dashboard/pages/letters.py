"""The letters: a row of filters, 50 to a page, and those that came meanwhile behind a link. Rows never jump."""

from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard import filters, words
from dlq_handler.dashboard.filters import Asked
from dlq_handler.dashboard.letter_rows import letter_rows
from dlq_handler.dashboard.shell import render
from dlq_handler.dashboard.site import Site
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import search_sql
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.filter import CameBefore, CappedCount, LetterPage
from dlq_handler.dead_letters.group import Category
from dlq_handler.dead_letters.letter import DEATH_REASONS, UNKNOWN_REASON
from dlq_handler.dead_letters.no_record import no_letters_sentence
from dlq_handler.history import events_sql

PAGE_SIZE = 50
LARGEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersFacts:
    page: LetterPage
    count: CappedCount
    after: int
    came: CameBefore | None
    """None: some are on record, or only those were asked for that something is said of."""


async def gather(database: Database, asked: Asked, before: int | None, after: int | None) -> LettersFacts:
    happened = await events_sql.latest_id(database)
    page = await search_sql.search(database, asked.wanted, before_id=before, after_id=after, limit=PAGE_SIZE)
    is_empty = not page.records and not asked.given
    return LettersFacts(
        page=page,
        count=await search_sql.count(database, asked.wanted),
        after=happened,
        came=await search_sql.came_before(database) if is_empty else None,
    )


async def letters_page(site: Site, request: Request) -> Response:
    asked = filters.read(request.query_params, now=site.now)
    seen = _number(request.query_params.get("seen"))
    if request.query_params.get("fragment") == "new" and seen is not None:
        return await _new_ones(site, request, asked, seen)
    before, after = (_number(request.query_params.get(name)) for name in ("before", "after"))
    facts, away = None, None
    if not asked.problems:
        # Not within `ask`: waiting for a turn does not mean an outage of the database.
        async with site.world.searches.turn():
            remembered = await site.ask(
                _key(asked, before, after),
                lambda: gather(site.world.database, asked, before, after),
            )
        facts, away = remembered.facts, remembered.away
    records = facts.page.records if facts else []
    # Nothing new comes to a moment of the past.
    is_newest = facts is not None and facts.page.newer is None and asked.at is None
    context = {
        "asked": asked,
        "choices": {
            "category": list(Category),
            "reason": [*DEATH_REASONS, UNKNOWN_REASON],
            "outcome": list(Outcome),
        },
        "example": f"{site.now:%Y-%m-%d %H:%M}",
        "workers": sorted(site.worker_names.items()),
        "rows": letter_rows(records, site.worker_names),
        "count": None if facts is None else str(facts.count),
        "older": None if facts is None or facts.page.older is None else asked.href(before=facts.page.older),
        "newer": None if facts is None or facts.page.newer is None else asked.href(after=facts.page.newer),
        # A page of older dead letters does not show new ones.
        "seen": (records[0].id if records else 0) if is_newest else None,
        "new": None,
        "emptied": no_letters_sentence(facts.came, site.now, site.world.retention)
        if facts and facts.came and facts.came.has_any
        else None,
        "away": away,
        "pause_href": None
        if asked.at or asked.problems
        else asked.href(at=words.iso(site.now), before=before, after=after),
    }
    title = f"Letters · {site.headline().title}"
    shell = site.shell(
        request,
        title,
        here="/letters",
        after=facts.after if is_newest and facts else None,
        is_paused=asked.at is not None,
    )
    return render("letters.html", shell, context, status=422 if asked.problems else 200)


async def _new_ones(site: Site, request: Request, asked: Asked, seen: int) -> Response:
    """How many came since the page was loaded. Asked for every time: what was true a minute ago is of no use."""
    async with site.world.searches.turn():
        remembered = await site.ask(
            f"/letters new {asked.given} {seen}",
            lambda: search_sql.newer_than(site.world.database, asked.wanted, seen),
        )
    newer, away = remembered.facts, remembered.away
    if away is not None and away.kept_at is None:
        # The page was loaded now: its rows are as old as the page.
        away = replace(away, kept_at=site.memory.kept_at(_key(asked, None, None)))
    context = {
        "seen": seen,
        "asked": asked,
        "new": str(newer) if newer and newer.count and not away else None,
        "away": away,
    }
    return render("fragments/new.html", site.shell(request), context)


def _key(asked: Asked, before: int | None, after: int | None) -> str:
    return f"/letters {asked.given} {before} {after}"


def _number(text: str | None) -> int | None:
    """Of a page: whatever is no number is the first page."""
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if text is not None and is_number and int(text) <= LARGEST_ID else None
