"""The first page: whose fault, since when, how much, what next. With `?at=` it shows a moment of the past."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.domain.diagnosis import Diagnosis
from dlq_handler.domain.letter_group import GroupCount
from dlq_handler.store import diagnoses as diagnosis_store
from dlq_handler.store import happenings, history, letter_groups, letter_search
from dlq_handler.store.engine import Database
from dlq_handler.surface.dashboard import chart_section, group_rows, words
from dlq_handler.surface.dashboard.chart import ChartFacts
from dlq_handler.surface.dashboard.chart_scale import Window
from dlq_handler.surface.dashboard.past import link_of
from dlq_handler.surface.dashboard.shell import render
from dlq_handler.surface.dashboard.site import Site
from dlq_handler.surface.dashboard.strip import strip
from dlq_handler.surface.web.errors import Refused

FRAGMENTS = ("diagnosis", "strip", "chart", "groups")
ASKED = ("span", "at", "chart", "fragment")
GROUPS_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class NowFacts:
    chart: ChartFacts
    groups: Sequence[GroupCount]
    group_count: int
    last_letter_at: datetime | None
    after: int
    past: tuple[datetime, Sequence[Diagnosis]] | None
    """What was diagnosed at the moment that was asked for; None: nothing is on record of it, or it is now."""


NOTHING = NowFacts(
    chart=ChartFacts(minutes=(), blind=(), lanes=(), marks=()),
    groups=(),
    group_count=0,
    last_letter_at=None,
    after=0,
    past=None,
)


async def gather(database: Database, window: Window, at: datetime | None) -> NowFacts:
    since, until = window.since, window.until
    # First: what happens while the rest is read is told again, and nothing is missed.
    after = await happenings.latest_id(database)
    return NowFacts(
        chart=ChartFacts(
            minutes=await letter_groups.letters_per_minute(database, since=since, until=until),
            blind=await history.blind(database, since=since, until=until),
            lanes=await history.lanes(database, since=since, until=until),
            marks=await happenings.marks(database, since=since, until=until),
        ),
        groups=await letter_groups.groups(database, since=since, until=until, limit=GROUPS_SHOWN),
        group_count=await letter_groups.count_groups(database, since=since, until=until),
        last_letter_at=await letter_search.last_received_at(database),
        after=after,
        past=None if at is None else await diagnosis_store.as_of(database, at),
    )


async def now_page(site: Site, request: Request) -> Response:
    asked = request.query_params
    if unknown := next((name for name in asked if name not in ASKED), None):
        raise Refused(422, f"There is no {unknown[:40]!r} to ask this page for, only {words.listed(ASKED)}.")
    span = asked.get("span", "1h")
    if span not in chart_section.SPANS:
        raise Refused(422, f"span is one of {', '.join(chart_section.SPANS)}.")
    at = read_at(asked.get("at"), site.now)
    is_table = asked.get("chart") == "table"
    until = at or site.now
    window = chart_section.window_of(chart_section.SPANS[span], until)
    remembered = await site.ask(f"/ {span} {at}", lambda: gather(site.world.database, window, at))
    facts = remembered.facts or NOTHING
    past = facts.past[1] if facts.past else ()
    headline = site.headline() if at is None else site.headline_of_past(past, at)
    view = None if at else site.view
    chart = chart_section.section(
        facts.chart,
        span=span,
        until=until,
        at=at,
        is_table=is_table,
        ttl_seconds=site.world.ttl_seconds,
        warning_rate=site.world.warning_rate,
        empty=None
        if remembered.facts is None
        else chart_section.nothing_came(view, span=span, last_at=facts.last_letter_at, now=until),
    )
    rows = group_rows.rows(facts.groups, facts.chart.lanes, site.worker_names)
    here = chart_section.href(span, at, is_table=is_table)
    context = {
        "to": partial(link_of, at=at, here=here, window=window),
        "headline": headline,
        "looked_at": site.looked_at,
        "strip": strip(view, past if at else site.diagnoses),
        "chart": chart,
        "groups": group_rows.section(
            rows,
            count=facts.group_count,
            span=chart_section.SPANS[span].name,
            since=window.since,
            until=window.until,
        ),
        "away": remembered.away,
        "paused": None if at is None else words.moment(at, site.now),
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
