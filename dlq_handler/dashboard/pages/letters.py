"""Dead letters: the list with its filters, 50 to a page, and the page of one, with its path and its masked body."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard import filters, words
from dlq_handler.dashboard.filters import Asked
from dlq_handler.dashboard.letter_path import completion_event_of, in_one_sentence, path
from dlq_handler.dashboard.pages.execution import facts as facts_of
from dlq_handler.dashboard.pages.groups import timelines_of
from dlq_handler.dashboard.rows import letter_rows
from dlq_handler.dashboard.shell import render
from dlq_handler.dashboard.site import Site
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import groups_sql, records_sql, search_sql
from dlq_handler.dead_letters.decision import REPROCESSABLE, Outcome
from dlq_handler.dead_letters.group import Category, Group, title_in
from dlq_handler.dead_letters.letter import DEATH_REASONS, UNKNOWN_REASON
from dlq_handler.dead_letters.listing import (
    CameBefore,
    CappedCount,
    LetterPage,
    LetterRecord,
    no_letters_sentence,
    no_record_sentence,
)
from dlq_handler.diagnosis.view import TopologyFact
from dlq_handler.explain.records import OutboxRecord
from dlq_handler.explain.records_sql import records_of
from dlq_handler.history import events_sql
from dlq_handler.history.history import Timeline
from dlq_handler.masking import SHOWN_BYTES, masked_body
from dlq_handler.web.errors import Refused
from dlq_handler.web.guard import csrf_of
from dlq_handler.web.users import needs_operate, user_of

PAGE_SIZE = 50


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
    seen = filters.read_id(request.query_params.get("seen"))
    if request.query_params.get("fragment") == "new" and seen is not None:
        return await _new_ones(site, request, asked, seen)
    before, after = (filters.read_id(request.query_params.get(name)) for name in ("before", "after"))
    facts, outage = None, None
    if not asked.problems:
        # Not within `ask`: waiting for a turn does not mean an outage of the database.
        async with site.world.searches.turn():
            remembered = await site.ask(
                _key(asked, before, after),
                lambda: gather(site.world.database, asked, before, after),
            )
        facts, outage = remembered.facts, remembered.outage
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
        "outage": outage,
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
    newer, outage = remembered.facts, remembered.outage
    if outage is not None and outage.kept_at is None:
        # The page was loaded now: its rows are as old as the page.
        outage = replace(outage, kept_at=site.memory.kept_at(_key(asked, None, None)))
    context = {
        "seen": seen,
        "asked": asked,
        "new": str(newer) if newer and newer.count and not outage else None,
        "outage": outage,
    }
    return render("fragments/new.html", site.shell(request), context)


def _key(asked: Asked, before: int | None, after: int | None) -> str:
    return f"/letters {asked.given} {before} {after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFacts:
    record: LetterRecord | None
    outbox: Sequence[OutboxRecord] = ()
    group: Group | None = None
    timelines: Sequence[Timeline] = ()
    older: int | None = None
    newer: int | None = None


async def gather_letter(database: Database, letter_id: int, *, ttl_seconds: float) -> LetterFacts:
    record = await records_sql.show(database, letter_id)
    if record is None:
        return LetterFacts(record=None)
    older, newer = await search_sql.neighbours(database, letter_id)
    group = None if record.group_id is None else await groups_sql.group(database, record.group_id)
    return LetterFacts(
        record=record,
        outbox=()
        if record.execution_id is None
        else (await records_of(database, record.execution_id)).outbox,
        group=group,
        timelines=() if group is None else await timelines_of(database, group, ttl_seconds=ttl_seconds),
        older=older,
        newer=newer,
    )


async def letter_page(site: Site, request: Request, letter_id: int) -> Response:
    ttl_seconds = site.world.ttl_seconds
    remembered = await site.ask(
        f"/letters/{letter_id}",
        lambda: gather_letter(site.world.database, letter_id, ttl_seconds=ttl_seconds),
    )
    facts = remembered.facts
    if facts is None:
        return site.outage_page(request, remembered.outage, back=("/letters", "All letters"))
    record, user = facts.record, user_of(request)
    if record is None:
        raise not_on_record(site)
    event = completion_event_of(record, facts.outbox, completed_key=site.world.completed_key)
    sentence = in_one_sentence(record, event)
    body = masked_body(record.body or b"", is_text_shown=user.may_operate)
    seen = None if site.view is None else site.view.topology
    intake = seen.checked.intake_queue if isinstance(seen, TopologyFact) else None
    context = {
        "record": record,
        "sentence": sentence,
        "path": path(record, event, intake=intake, now=site.now),
        "worker_name": site.worker_names.get(record.worker_id or 0),
        "group": facts.group,
        "group_title": None
        if facts.group is None
        else title_in(facts.group, facts.timelines, site.worker_names, ttl_seconds=ttl_seconds),
        "older": facts.older,
        "newer": facts.newer,
        "evidence": facts_of(record.evidence),
        "headers": json.dumps(record.headers, indent=2, ensure_ascii=False) if record.headers else None,
        "body": body,
        "body_size": words.size(record.body_size),
        "kept": None if body.size == record.body_size else words.size(body.size),
        "shown_limit": words.size(SHOWN_BYTES),
        "can_reprocess": record.outcome in REPROCESSABLE and not record.is_shadow,
        "may_help": record.outcome is not Outcome.UNRELATED,
        "raw": {"may": user.may_operate, "role": user.role.value, "csrf": csrf_of(request)},
        "outage": remembered.outage,
    }
    title = f"Letter {letter_id}: {sentence}"
    return render("letter.html", site.shell(request, title, here="/letters"), context)


def not_on_record(site: Site) -> Refused:
    return Refused(404, no_record_sentence(site.world.retention.resolved_seconds))


async def raw_body_page(site: Site, request: Request, letter_id: int) -> Response:
    """For the role operate, asked for by a button, and recorded in the audit."""
    needs_operate(request)
    body = await site.world.operating.read_body(user_of(request).actor, letter_id)
    if body is None:
        raise not_on_record(site)
    title = f"Raw body of letter {letter_id}"
    context = {
        "title": title,
        "id": letter_id,
        "text": body.decode("utf-8", "backslashreplace"),
        "size": words.size(len(body)),
    }
    return render("body.html", site.shell(request, title, here="/letters"), context)
