"""One letter: a sentence, its way in five boxes, what the verdict rests on, its headers and its body, masked."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.domain.group_title import title_in
from dlq_handler.domain.history import Lane
from dlq_handler.domain.letter_group import Group
from dlq_handler.domain.letter_record import LetterRecord
from dlq_handler.domain.masking import SHOWN_BYTES, masked_body
from dlq_handler.domain.story_records import OutboxRecord
from dlq_handler.domain.verdict import REJUDGEABLE
from dlq_handler.domain.view import TopologySeen
from dlq_handler.store import letter_groups, letter_search, letters, swept
from dlq_handler.store.engine import Database
from dlq_handler.store.story import records_of
from dlq_handler.surface.dashboard import words
from dlq_handler.surface.dashboard.letter_path import in_one_sentence, notice_of, path
from dlq_handler.surface.dashboard.pages.away import away_page
from dlq_handler.surface.dashboard.pages.group_lanes import lanes_of
from dlq_handler.surface.dashboard.shell import render
from dlq_handler.surface.dashboard.site import Site
from dlq_handler.surface.dashboard.timeline import facts as facts_of
from dlq_handler.surface.swept import swept_sentence
from dlq_handler.surface.web.errors import Refused
from dlq_handler.surface.web.guard import csrf_of
from dlq_handler.surface.web.visitor import visitor_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFacts:
    record: LetterRecord | None
    swept_at: datetime | None = None
    outbox: Sequence[OutboxRecord] = ()
    group: Group | None = None
    lanes: Sequence[Lane] = ()
    older: int | None = None
    newer: int | None = None


async def gather(database: Database, letter_id: int, *, ttl_seconds: float) -> LetterFacts:
    record = await letters.show(database, letter_id)
    if record is None:
        return LetterFacts(record=None, swept_at=await swept.letter_swept_at(database, letter_id))
    older, newer = await letter_search.neighbours(database, letter_id)
    group = None if record.group_id is None else await letter_groups.group(database, record.group_id)
    return LetterFacts(
        record=record,
        outbox=()
        if record.execution_id is None
        else (await records_of(database, record.execution_id)).outbox,
        group=group,
        lanes=() if group is None else await lanes_of(database, group, ttl_seconds=ttl_seconds),
        older=older,
        newer=newer,
    )


async def letter_page(site: Site, request: Request, letter_id: int) -> Response:
    ttl_seconds = site.world.ttl_seconds
    remembered = await site.ask(
        f"/letters/{letter_id}", lambda: gather(site.world.database, letter_id, ttl_seconds=ttl_seconds)
    )
    facts = remembered.facts
    if facts is None:
        return away_page(site, request, remembered.away, back=("/letters", "All letters"))
    record, visitor = facts.record, visitor_of(request)
    if record is None:
        raise not_on_record(site, letter_id, facts.swept_at)
    notice = notice_of(record, facts.outbox, completed_key=site.world.completed_key)
    sentence = in_one_sentence(record, notice)
    body = masked_body(record.body or b"")
    seen = None if site.view is None else site.view.topology
    intake = seen.checked.intake_queue if isinstance(seen, TopologySeen) else None
    context = {
        "record": record,
        "sentence": sentence,
        "path": path(record, notice, intake=intake, now=site.now),
        "worker_name": site.worker_names.get(record.worker_id or 0),
        "group": facts.group,
        "group_title": None
        if facts.group is None
        else title_in(facts.group, facts.lanes, site.worker_names, ttl_seconds=ttl_seconds),
        "older": facts.older,
        "newer": facts.newer,
        "evidence": facts_of(record.evidence),
        "headers": json.dumps(record.headers, indent=2, ensure_ascii=False) if record.headers else None,
        "body": body,
        "body_size": words.size(record.body_size),
        "kept": None if body.size == record.body_size else words.size(body.size),
        "shown_limit": words.size(SHOWN_BYTES),
        "can_rejudge": record.outcome in REJUDGEABLE and not record.is_shadow,
        "raw": {"may": visitor.may_operate, "role": visitor.role.value, "csrf": csrf_of(request)},
        "away": remembered.away,
    }
    title = f"Letter {letter_id}: {sentence}"
    return render("letter.html", site.shell(request, title, here="/letters"), context)


def not_on_record(site: Site, letter_id: int, swept_at: datetime | None) -> Refused:
    """Gone for its age, or never there: who follows an old link must see which."""
    if swept_at is not None:
        return Refused(410, swept_sentence(letter_id, swept_at, site.world.retention))
    return Refused(
        404, f"Letter {letter_id} is not on record. The address may be mistyped, or of another installation."
    )
