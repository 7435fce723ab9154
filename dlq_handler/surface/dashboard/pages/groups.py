"""Groups of letters by cause: all of a stretch of time, and one with its newest letters."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.domain.group_title import title_in
from dlq_handler.domain.history import Lane
from dlq_handler.domain.letter_filter import CappedCount, LetterFilter
from dlq_handler.domain.letter_group import Cause, Group, GroupCount
from dlq_handler.domain.letter_record import LetterRecord
from dlq_handler.store import happenings, history, letter_groups, letter_search
from dlq_handler.store.engine import Database
from dlq_handler.store.put_up import can_be_put_up
from dlq_handler.store.swept import group_swept_at
from dlq_handler.surface.dashboard import filters, group_rows, words
from dlq_handler.surface.dashboard.letter_rows import letter_rows
from dlq_handler.surface.dashboard.pages.away import away_page
from dlq_handler.surface.dashboard.pages.group_lanes import lanes_of
from dlq_handler.surface.dashboard.shell import render
from dlq_handler.surface.dashboard.site import Site
from dlq_handler.surface.swept import swept_group_sentence
from dlq_handler.surface.web.errors import Refused

ASKED = ("since", "until", "at")
MOST_GROUPS = 500
LETTERS_SHOWN = 20
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsFacts:
    counts: Sequence[GroupCount]
    count: int
    lanes: Sequence[Lane]
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    group: Group | None
    swept_at: datetime | None = None
    records: Sequence[LetterRecord] = ()
    lanes: Sequence[Lane] = ()
    kept: CappedCount | None = None


async def groups_page(site: Site, request: Request) -> Response:
    now, asked = site.now, request.query_params
    # Left alone, another time would be shown as if it were the one asked for.
    if unknown := next((name for name in asked if name not in ASKED), None):
        raise Refused(422, f"There is no {unknown[:40]!r} to ask this page for, only {words.listed(ASKED)}.")
    since = _moment("from", asked.get("since"), now) or now - _DAY
    until = _moment("to", asked.get("until"), now) or now

    async def gather() -> GroupsFacts:
        database = site.world.database
        return GroupsFacts(
            after=await happenings.latest_id(database),
            counts=await letter_groups.groups(database, since=since, until=until, limit=MOST_GROUPS),
            count=await letter_groups.count_groups(database, since=since, until=until),
            lanes=await history.lanes(
                database, since=since - timedelta(seconds=site.world.ttl_seconds), until=until
            ),
        )

    key = {name: asked.get(name) for name in ("since", "until")}
    remembered = await site.ask(f"/groups {key}", gather)
    facts = remembered.facts
    context = {
        "rows": group_rows.rows(
            facts.counts, facts.lanes, site.worker_names, ttl_seconds=site.world.ttl_seconds
        )
        if facts
        else (),
        "count": facts.count if facts else None,
        "since": since,
        "until": until,
        "command": _command(asked.get("since"), asked.get("until")),
        "away": remembered.away,
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
    group = await letter_groups.group(database, group_id)
    if group is None:
        return GroupFacts(group=None, swept_at=await group_swept_at(database, group_id))
    page = await letter_search.search(database, LetterFilter(group=group_id), limit=LETTERS_SHOWN)
    async with database.transaction() as tx:
        kept = await can_be_put_up(tx, group_id)
    return GroupFacts(
        group=group,
        records=page.records,
        lanes=await lanes_of(database, group, ttl_seconds=ttl_seconds),
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
        return away_page(site, request, remembered.away, back=("/groups", "All groups"))
    group, kept = facts.group, facts.kept
    if group is None:
        raise group_not_on_record(site, group_id, facts.swept_at)
    title = title_in(group, facts.lanes, site.worker_names, ttl_seconds=ttl_seconds)
    context = {
        "group": group,
        "title": title,
        "meaning": MEANINGS[group.cause],
        "actions": [*group.actions, *([f"and {group.more_actions} more"] if group.more_actions else [])],
        "worker_name": site.worker_names.get(group.worker_id or 0),
        "rows": letter_rows(facts.records, site.worker_names),
        "rejudgeable": str(kept) if kept and kept.count else None,
        "command": f"dlq-handler letters list --group {group.id}",
        "away": remembered.away,
    }
    return render("group.html", site.shell(request, title, here="/letters"), context)


def group_not_on_record(site: Site, group_id: str, swept_at: datetime | None) -> Refused:
    """Gone for its age, or never there: who follows an old link must see which."""
    if swept_at is not None:
        return Refused(410, swept_group_sentence(group_id, swept_at, site.world.retention))
    return Refused(
        404, f"Group {group_id} is not on record. The address may be mistyped, or of another installation."
    )


MEANINGS = {
    Cause.NOT_TAKEN: "Nobody took these messages out of their queue before their time was over.",
    Cause.QUEUE_FULL: "The queue was full, and pushed these messages out.",
    Cause.REJECTED: "Whoever took these messages gave them back for good.",
    Cause.DELIVERY_LIMIT: "These messages were delivered again and again, and nobody finished with them.",
    Cause.RESCUED: "We took these messages out of the queue of a worker that is gone, before their time.",
    Cause.NO_DEATH: "Nothing says that these messages died anywhere: somebody published them here.",
    Cause.OTHER_DEATH: "These messages died of a reason that this version does not know.",
    Cause.UNKNOWN_EXECUTION: "These messages are about executions that this database does not have.",
    Cause.FOREIGN: "These messages are no dispatches of executions. They are kept, and nothing was changed.",
    Cause.UNREADABLE: "These messages could not be read. They are kept, and nothing was changed.",
}
