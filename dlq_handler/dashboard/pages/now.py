"""The first page: whose fault, since when, how much, what next. With `?at=` it shows a moment of the past."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard import words
from dlq_handler.dashboard.chart import section as chart_section
from dlq_handler.dashboard.chart.draw import ChartFacts
from dlq_handler.dashboard.chart.scale import Window
from dlq_handler.dashboard.chart.section import with_outage
from dlq_handler.dashboard.filters import refuse_unknown
from dlq_handler.dashboard.kept import Remembered
from dlq_handler.dashboard.rows import group_rows, group_section
from dlq_handler.dashboard.shell import render
from dlq_handler.dashboard.site import Site
from dlq_handler.dashboard.strip import strip
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import groups_sql, search_sql
from dlq_handler.dead_letters.group import GroupCount
from dlq_handler.dead_letters.listing import CameBefore
from dlq_handler.diagnosis import diagnoses_sql as diagnosis_store
from dlq_handler.diagnosis.diagnosis import Diagnosis
from dlq_handler.diagnosis.view import Unknown, View
from dlq_handler.history import events_sql, history_sql
from dlq_handler.safety.brake import BrakeMode, in_words, mode_of
from dlq_handler.web.errors import Refused

FRAGMENTS = ("diagnosis", "strip", "chart", "groups")
ASKED = ("span", "at", "chart", "fragment")
GROUPS_SHOWN = 8
# Pages that show only the present. With a past moment in their address they show a note.
_OF_NOW = ("/workers", "/topology")


@dataclass(frozen=True, slots=True, kw_only=True)
class NowFacts:
    chart: ChartFacts
    groups: Sequence[GroupCount]
    group_count: int
    came: CameBefore
    after: int
    past: tuple[datetime, Sequence[Diagnosis]] | None
    """What was diagnosed at the moment that was asked for; None: nothing is on record of it, or it is now."""


# The database is unavailable, and this page was not open before. The headline explains the outage.
UNREAD = "the database is unreachable, and nothing is kept of this time"

NOTHING = NowFacts(
    chart=ChartFacts(minutes=(), gaps=(), timelines=(), markers=()),
    groups=(),
    group_count=0,
    came=CameBefore(has_any=False, last_at=None),
    after=0,
    past=None,
)


async def gather(database: Database, window: Window, at: datetime | None, *, ttl_seconds: float) -> NowFacts:
    since, until = window.since, counted_until(window, at)
    # Nothing that happened after the moment that is shown.
    end = at or until
    # First: an event that happens during the reads is sent again, and none is missed.
    after = await events_sql.latest_id(database)
    return NowFacts(
        chart=ChartFacts(
            minutes=await groups_sql.letters_per_minute(database, since=since, until=until),
            gaps=await history_sql.gaps(database, since=since, until=end),
            # One TTL more than is drawn: the first groups are named after workers that were unavailable before them.
            timelines=await history_sql.timelines(
                database, since=since - timedelta(seconds=ttl_seconds), until=end
            ),
            markers=await events_sql.markers(database, since=since, until=end),
        ),
        groups=await groups_sql.groups(database, since=since, until=until, limit=GROUPS_SHOWN),
        group_count=await groups_sql.count_groups(database, since=since, until=until),
        came=await search_sql.came_before(database),
        after=after,
        past=None if at is None else await diagnosis_store.as_of(database, at),
    )


def counted_until(window: Window, at: datetime | None) -> datetime:
    """Letters are counted by the minute, so that the one in which a moment of the past lies is counted as a whole."""
    return window.until if at is None else at.replace(second=0, microsecond=0) + timedelta(minutes=1)


def _window(span: str, until: datetime) -> Window:
    return chart_section.window_of(chart_section.SPANS[span], until)


async def read(site: Site, span: str, at: datetime | None = None) -> Remembered[NowFacts]:
    window, ttl_seconds = _window(span, at or site.now), site.world.ttl_seconds
    return await site.ask(
        f"/ {span} {at}", lambda: gather(site.world.database, window, at, ttl_seconds=ttl_seconds)
    )


async def now_page(site: Site, request: Request) -> Response:
    asked = request.query_params
    refuse_unknown(asked, ASKED)
    span = asked.get("span", "1h")
    if span not in chart_section.SPANS:
        raise Refused(422, f"span is one of {', '.join(chart_section.SPANS)}.")
    # Read once: facts that are older than now by a moment would count as facts from before an outage.
    now = site.now
    at = read_at(asked.get("at"), now)
    is_table = asked.get("chart") == "table"
    until = at or now
    window, ttl_seconds = _window(span, until), site.world.ttl_seconds
    remembered = await read(site, span, at)
    facts = remembered.facts or NOTHING
    kept_at = remembered.outage.kept_at if remembered.outage else None
    view, diagnoses = (None, ()) if at else site.seen_with(remembered.outage)
    shown = facts.chart if at else with_outage(facts.chart, view, diagnoses, known_at=kept_at or now, now=now)
    past = facts.past[1] if facts.past else ()
    is_known = remembered.facts is not None
    headline = site.headline(diagnoses) if at is None else site.headline_of_past(past, at, is_known=is_known)
    chart = (
        chart_section.section(
            shown,
            span=span,
            until=until,
            at=at,
            is_table=is_table,
            ttl_seconds=ttl_seconds,
            warning_rate=site.world.warning_rate,
            empty=chart_section.nothing_came(view, span=span, came=facts.came, now=until),
        )
        if is_known
        else chart_section.unknown(UNREAD, span=span, at=at, is_table=is_table)
    )
    rows = group_rows(facts.groups, facts.chart.timelines, site.worker_names, ttl_seconds=ttl_seconds)
    here = chart_section.href(span, at, is_table=is_table)
    context = {
        "to": partial(link_of, at=at, here=here, window=window),
        "headline": headline,
        "release": _release(view),
        "observed_at": site.observed_at,
        # Words of the past are as old as the change that put them on record: "for 15 s" counts until then.
        "diagnosed_at": facts.past[0] if facts.past else None,
        "strip": strip(view, past if at else diagnoses),
        "chart": chart,
        "groups": group_section(
            rows,
            count=facts.group_count,
            span=chart_section.SPANS[span].name,
            since=window.since,
            until=counted_until(window, at),
        ),
        "outage": remembered.outage,
        "at": at,
        "pause_href": chart_section.href(span, site.now, is_table=is_table),
    }
    shell = site.shell(
        request,
        headline.title,
        here="/",
        after=None if at else facts.after,
        is_paused=at is not None,
    )
    fragment = asked.get("fragment")
    template = f"fragments/{fragment}.html" if fragment in FRAGMENTS else "now.html"
    return render(template, shell, context)


def _release(view: View | None) -> str | None:
    """A released brake limits nothing, which no diagnosis shows. None: the limit holds, or its state is unknown."""
    if view is None or isinstance(view.brake, Unknown):
        return None
    if mode_of(view.brake.view, view.brake.policy) is not BrakeMode.RELEASED:
        return None
    return f"The brake is {in_words(view.brake.view, view.brake.policy)}"


def read_at(text: str | None, now: datetime) -> datetime | None:
    """A moment of the past in ISO 8601, UTC unless it says otherwise. None: now."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(422, "at is a time such as 2026-11-16T02:58:00Z.") from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    # To the second, as links are written: the same moment is the same page.
    return min(at, now).astimezone(UTC).replace(microsecond=0)


def link_of(href: str, *, at: datetime | None, here: str, window: Window) -> str:
    """A link on a page of the past leads to the same moment, or to a page that says it cannot show it.

    `at` None: of now, and nothing changes. `here`: this page, at this moment.
    """
    split = urlsplit(href)
    if at is None:
        return href
    if split.path == "/":
        return f"{here}#{split.fragment}" if split.fragment else here
    if split.path == "/letters":
        asked = urlencode({"since": words.iso(window.since), "until": words.iso(at)})
    elif split.path in _OF_NOW:
        asked = urlencode({"at": words.iso(at)})
    else:
        return href
    return split._replace(query=f"{split.query}&{asked}" if split.query else asked).geturl()
