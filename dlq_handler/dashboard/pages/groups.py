"""Groups of dead letters by category: all groups of a period, and one group with its newest dead letters."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard import filters
from dlq_handler.dashboard.rows import group_rows, letter_rows
from dlq_handler.dashboard.shell import render
from dlq_handler.dashboard.site import Site
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import groups_sql, search_sql
from dlq_handler.dead_letters.group import Category, Group, GroupCount, detail_text_of, title_in, waited
from dlq_handler.dead_letters.listing import CappedCount, LetterFilter, LetterRecord, no_record_sentence
from dlq_handler.dead_letters.reprocess_sql import read_group_state
from dlq_handler.history import history_sql
from dlq_handler.history.history import Timeline
from dlq_handler.web.errors import Refused

ASKED = ("since", "until", "at")
MOST_GROUPS = 500
LETTERS_SHOWN = 20
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsFacts:
    counts: Sequence[GroupCount]
    count: int
    timelines: Sequence[Timeline]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    group: Group | None
    records: Sequence[LetterRecord] = ()
    timelines: Sequence[Timeline] = ()
    kept: CappedCount | None = None


async def groups_page(site: Site, request: Request) -> Response:
    now, asked = site.now, request.query_params
    filters.refuse_unknown(asked, ASKED)
    since = _moment("from", asked.get("since"), now) or now - _DAY
    until = _moment("to", asked.get("until"), now) or now

    async def gather() -> GroupsFacts:
        database = site.world.database
        return GroupsFacts(
            counts=await groups_sql.groups(database, since=since, until=until, limit=MOST_GROUPS),
            count=await groups_sql.count_groups(database, since=since, until=until),
            timelines=await history_sql.timelines(
                database, since=since - timedelta(seconds=site.world.ttl_seconds), until=until
            ),
        )

    key = {name: asked.get(name) for name in ("since", "until")}
    remembered = await site.ask(f"/groups {key}", gather)
    facts = remembered.facts
    context = {
        "rows": group_rows(
            facts.counts, facts.timelines, site.worker_names, ttl_seconds=site.world.ttl_seconds
        )
        if facts
        else (),
        "count": facts.count if facts else None,
        "since": since,
        "until": until,
        "command": _command(asked.get("since"), asked.get("until")),
        "outage": remembered.outage,
    }
    shell = site.shell(request, f"Groups · {site.headline().title}", here="/letters")
    return render("groups.html", shell, context)


def _moment(label: str, text: str | None, now: datetime) -> datetime | None:
    """None: nothing is asked for."""
    if text is None or not text.strip():
        return None
    found = filters.read_moment(text.strip(), now)
    if found is None:
        raise Refused(422, f"{filters.no_moment(label)}.")
    return found


def _command(since: str | None, until: str | None) -> str:
    asked = f"--since {shlex.quote(since or '24h')}"
    return f"dlq-handler letters groups {asked}" + (f" --until {shlex.quote(until)}" if until else "")


async def gather_group(database: Database, group_id: str, *, ttl_seconds: float) -> GroupFacts:
    group = await groups_sql.group(database, group_id)
    if group is None:
        return GroupFacts(group=None)
    page = await search_sql.search(database, LetterFilter(group=group_id), limit=LETTERS_SHOWN)
    async with database.transaction() as tx:
        kept = await read_group_state(tx, group_id)
    return GroupFacts(
        group=group,
        records=page.records,
        timelines=await timelines_of(database, group, ttl_seconds=ttl_seconds),
        kept=kept.letters,
    )


async def group_page(site: Site, request: Request, group_id: str) -> Response:
    ttl_seconds = site.world.ttl_seconds
    async with site.world.searches.turn():
        remembered = await site.ask(
            f"/groups/{group_id}",
            lambda: gather_group(site.world.database, group_id, ttl_seconds=ttl_seconds),
        )
    facts = remembered.facts
    if facts is None:
        return site.outage_page(request, remembered.outage, back=("/groups", "All groups"))
    group, kept = facts.group, facts.kept
    if group is None:
        raise group_not_on_record(site)
    title = title_in(group, facts.timelines, site.worker_names, ttl_seconds=ttl_seconds)
    context = {
        "group": group,
        "title": title,
        "detail": detail_text_of(group),
        "meaning": MEANINGS[group.category],
        "actions": [*group.actions, *([f"and {group.more_actions} more"] if group.more_actions else [])],
        "worker_name": site.worker_names.get(group.worker_id or 0),
        "rows": letter_rows(facts.records, site.worker_names),
        "reprocessable": str(kept) if kept and kept.count else None,
        "may_help": group.category is not Category.UNRELATED,
        "command": f"dlq-handler letters list --group {group.id}",
        "outage": remembered.outage,
    }
    return render("group.html", site.shell(request, title, here="/letters"), context)


def group_not_on_record(site: Site) -> Refused:
    return Refused(404, no_record_sentence(site.world.retention.longest_seconds))


MEANINGS = {
    Category.NOT_TAKEN: "No consumer took these messages from their queue before they expired.",
    Category.QUEUE_FULL: "The queue was full and dropped these messages.",
    Category.REJECTED: "A consumer rejected these messages.",
    Category.DELIVERY_LIMIT: "These messages reached the delivery limit of their queue without an acknowledgement.",
    Category.RESCUED: "dlq-handler took these messages from the queue of an unavailable or retired worker before they "
    "expired.",
    Category.ARCHIVED: "These messages are not dispatches, and their queue was retired. They are recorded, and no "
    "execution was changed.",
    Category.NO_DEATH: "These messages have no x-death header: they were published directly to the intake queue.",
    Category.OTHER_DEATH: "These messages were dead-lettered for a reason that this version does not know.",
    Category.UNKNOWN_EXECUTION: "These messages name executions that this database does not have.",
    Category.UNRELATED: "These messages are not dispatches. They are recorded, and no execution was changed.",
    Category.UNREADABLE: "These messages could not be read. They are recorded, and no execution was changed.",
}


async def timelines_of(database: Database, group: Group, *, ttl_seconds: float) -> Sequence[Timeline]:
    """The timelines that a group's title depends on: was its worker unavailable around its newest dead letter?"""
    if group.worker_id is None:
        return ()
    since, until = waited(group.last_at, ttl_seconds=ttl_seconds)
    return await history_sql.timelines(database, since=since, until=until)
