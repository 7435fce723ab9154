"""The first page: whose fault, since when, how much, what next. With `?at=` it shows a moment of the past."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.domain.brake import BrakeMode, in_words, mode_of
from dlq_handler.domain.diagnosis import Diagnosis
from dlq_handler.domain.letter_filter import CameBefore
from dlq_handler.domain.letter_group import GroupCount
from dlq_handler.domain.view import Unknown, View
from dlq_handler.store import diagnoses as diagnosis_store
from dlq_handler.store import happenings, history, letter_groups, letter_search
from dlq_handler.store import mute as mute_store
from dlq_handler.store.engine import Database
from dlq_handler.store.mute import Mute
from dlq_handler.surface.dashboard import chart_section, group_rows, words
from dlq_handler.surface.dashboard.chart import ChartFacts
from dlq_handler.surface.dashboard.chart_scale import Window
from dlq_handler.surface.dashboard.outage import with_outage
from dlq_handler.surface.dashboard.past import link_of
from dlq_handler.surface.dashboard.shell import render
from dlq_handler.surface.dashboard.site import Site
from dlq_handler.surface.dashboard.strip import strip
from dlq_handler.surface.web.errors import Refused
from dlq_handler.surface.web.visitor import visitor_of

FRAGMENTS = ("diagnosis", "strip", "chart", "groups")
ASKED = ("span", "at", "chart", "fragment")
GROUPS_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class NowFacts:
    chart: ChartFacts
    groups: Sequence[GroupCount]
    group_count: int
    came: CameBefore
    after: int
    mute: Mute | None
    past: tuple[datetime, Sequence[Diagnosis]] | None
    """What was diagnosed at the moment that was asked for; None: nothing is on record of it, or it is now."""


# It is away, and this page was not open before: why is said above.
UNREAD = "the database is unreachable, and nothing is kept of this time"

NOTHING = NowFacts(
    chart=ChartFacts(minutes=(), blind=(), lanes=(), marks=()),
    groups=(),
    group_count=0,
    came=CameBefore(has_any=False, last_at=None, swept_at=None),
    after=0,
    mute=None,
    past=None,
)


async def gather(database: Database, window: Window, at: datetime | None, *, ttl_seconds: float) -> NowFacts:
    since, until = window.since, counted_until(window, at)
    # Of what has a moment of its own nothing after the one looked at: it had not happened yet.
    end = at or until
    # First: what happens while the rest is read is told again, and nothing is missed.
    after = await happenings.latest_id(database)
    return NowFacts(
        chart=ChartFacts(
            minutes=await letter_groups.letters_per_minute(database, since=since, until=until),
            blind=await history.blind(database, since=since, until=end),
            # One TTL more than is drawn: the first groups are called after who was gone before them.
            lanes=await history.lanes(database, since=since - timedelta(seconds=ttl_seconds), until=end),
            marks=await happenings.marks(database, since=since, until=end),
        ),
        groups=await letter_groups.groups(database, since=since, until=until, limit=GROUPS_SHOWN),
        group_count=await letter_groups.count_groups(database, since=since, until=until),
        came=await letter_search.came_before(database),
        after=after,
        mute=await mute_store.look(database) if at is None else None,
        past=None if at is None else await diagnosis_store.as_of(database, at),
    )


def counted_until(window: Window, at: datetime | None) -> datetime:
    """Letters are counted by the minute, so that the one in which a moment of the past lies is counted as a whole."""
    return window.until if at is None else at.replace(second=0, microsecond=0) + timedelta(minutes=1)


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
    ttl_seconds = site.world.ttl_seconds
    remembered = await site.ask(
        f"/ {span} {at}", lambda: gather(site.world.database, window, at, ttl_seconds=ttl_seconds)
    )
    facts = remembered.facts or NOTHING
    kept_at = remembered.away.kept_at if remembered.away else None
    view, diagnoses = (None, ()) if at else site.seen_with(remembered.away)
    shown = (
        facts.chart
        if at
        else with_outage(facts.chart, view, diagnoses, known_at=kept_at or site.now, now=site.now)
    )
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
    rows = group_rows.rows(facts.groups, facts.chart.lanes, site.worker_names, ttl_seconds=ttl_seconds)
    here = chart_section.href(span, at, is_table=is_table)
    context = {
        "to": partial(link_of, at=at, here=here, window=window),
        "headline": headline,
        "switched": list(_switched(facts.mute, view, site.now, may_operate=visitor_of(request).may_operate)),
        "looked_at": site.looked_at,
        # Words of the past are as old as the change that put them on record: "for 15 s" counts until then.
        "told_at": facts.past[0] if facts.past else None,
        "strip": strip(view, past if at else diagnoses),
        "chart": chart,
        "groups": group_rows.section(
            rows,
            count=facts.group_count,
            span=chart_section.SPANS[span].name,
            since=window.since,
            until=counted_until(window, at),
        ),
        "away": remembered.away,
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


def _switched(
    mute: Mute | None, view: View | None, now: datetime, *, may_operate: bool
) -> Iterator[tuple[str, str]]:
    """What somebody switched for a while, and where it is undone or told of: nobody must take the quiet for health."""
    if mute is not None:
        until = words.moment(mute.until, now)
        page = "/notify/mute" if may_operate else "/audit"
        yield f"Notifications are muted until {until} UTC by {mute.by}: {mute.reason}", page
    if view is None or isinstance(view.brake, Unknown):
        return
    if mode_of(view.brake.view, view.brake.policy) is BrakeMode.RELEASED:
        yield f"The brake is {in_words(view.brake.view, view.brake.policy)}", "/audit"


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
