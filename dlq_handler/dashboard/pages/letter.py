"""One letter: a sentence, its way in five boxes, what the decision rests on, its headers and its body, masked."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard import words
from dlq_handler.dashboard.errors import away_page
from dlq_handler.dashboard.letter_path import completion_event_of, in_one_sentence, path
from dlq_handler.dashboard.pages.groups import timelines_of
from dlq_handler.dashboard.shell import render
from dlq_handler.dashboard.site import Site
from dlq_handler.dashboard.story import facts as facts_of
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import groups_sql, records_sql, search_sql
from dlq_handler.dead_letters.decision import REPROCESSABLE, Outcome
from dlq_handler.dead_letters.group import Group, title_in
from dlq_handler.dead_letters.no_record import no_record_sentence
from dlq_handler.dead_letters.record import LetterRecord
from dlq_handler.diagnosis.view import TopologyFact
from dlq_handler.explain.records import OutboxRecord
from dlq_handler.explain.records_sql import records_of
from dlq_handler.history.history import Timeline
from dlq_handler.masking import SHOWN_BYTES, masked_body
from dlq_handler.web.errors import Refused
from dlq_handler.web.guard import csrf_of
from dlq_handler.web.users import needs_operate, user_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFacts:
    record: LetterRecord | None
    outbox: Sequence[OutboxRecord] = ()
    group: Group | None = None
    timelines: Sequence[Timeline] = ()
    older: int | None = None
    newer: int | None = None


async def gather(database: Database, letter_id: int, *, ttl_seconds: float) -> LetterFacts:
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
        f"/letters/{letter_id}", lambda: gather(site.world.database, letter_id, ttl_seconds=ttl_seconds)
    )
    facts = remembered.facts
    if facts is None:
        return away_page(site, request, remembered.away, back=("/letters", "All letters"))
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
        "away": remembered.away,
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
