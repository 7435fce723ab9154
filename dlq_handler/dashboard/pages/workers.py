"""The workers with state, host and queue, and the page of one worker with its last day."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard.kept import PageOutage, Remembered, WorkersKept
from dlq_handler.dashboard.rows import group_rows
from dlq_handler.dashboard.shell import render
from dlq_handler.dashboard.site import Site
from dlq_handler.dashboard.words import AVAILABILITIES, NONE, UNKNOWN, State, thousands
from dlq_handler.dead_letters import groups_sql
from dlq_handler.dead_letters.group import GroupCount
from dlq_handler.dead_letters.listing import no_record_sentence
from dlq_handler.diagnosis.check_services import ServiceFinding, finding_of
from dlq_handler.diagnosis.view import ObservedWorker, Unknown
from dlq_handler.history import events_sql, history_sql
from dlq_handler.history.history import Change, Timeline
from dlq_handler.web.errors import Refused
from dlq_handler.workers.availability import Availability, is_silent_for_a_day

# In a large fleet healthy workers are collapsed: operators search for the others.
WELL_SHOWN = 20
_MOST_GROUPS = 10_000
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)

# The word for a worker's state, and the note.
_RESTARTS: Mapping[ServiceFinding | None, tuple[str, str]] = {
    ServiceFinding.WORKER_WITHOUT_CONSUMER: ("not consuming", "reports without consuming: restart it"),
    ServiceFinding.WORKER_INACTIVE: ("gets no work", "reports and is inactive: restart it"),
}

_ORDER = (State.BAD, State.WARN, State.UNKNOWN, State.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersFacts:
    timelines: Sequence[Timeline]
    groups: Sequence[GroupCount]
    """Of the last hour."""
    after: int


async def gather(site: Site) -> WorkersFacts:
    database, now = site.world.database, site.now
    return WorkersFacts(
        after=await events_sql.latest_id(database),
        timelines=await history_sql.timelines(database, since=now - _DAY, until=now),
        groups=await groups_sql.groups(database, since=now - _HOUR, until=now, limit=_MOST_GROUPS),
    )


async def read(site: Site) -> Remembered[WorkersFacts]:
    return await site.ask("/workers", lambda: gather(site))


async def workers_page(site: Site, request: Request) -> Response:
    remembered = await read(site)
    facts, seen = remembered.facts, site.workers
    rows = (
        ()
        if isinstance(seen, Unknown)
        else worker_rows(seen.workers, facts.timelines if facts else (), _by_worker(facts))
    )
    ill = [row for row in rows if not row.is_silent_for_a_day and row.state is not State.OK]
    well = [row for row in rows if not row.is_silent_for_a_day and row.state is State.OK]
    context = {
        "count": sum(not row.is_silent_for_a_day for row in rows),
        "rows": [*ill, *well[:WELL_SHOWN]],
        "well": well[WELL_SHOWN:],
        "history": [row for row in rows if row.is_silent_for_a_day],
        "unknown": seen.explanation if isinstance(seen, Unknown) else None,
        "seen": None if isinstance(seen, Unknown) else seen,
        "outage": _dated(remembered.outage, seen),
    }
    shell = site.shell(
        request, f"Workers · {site.headline().title}", here="/workers", after=facts.after if facts else None
    )
    is_fragment = request.query_params.get("fragment") == "rows"
    return render("fragments/workers.html" if is_fragment else "workers.html", shell, context)


async def worker_page(site: Site, request: Request, worker_id: int) -> Response:
    seen = site.workers
    if isinstance(seen, Unknown):
        raise Refused(503, f"The state of workers is unknown: {seen.explanation}. Try again in a moment.")
    one = next((one for one in seen.workers if one.registered.worker.id == worker_id), None)
    remembered = await read(site)
    facts = remembered.facts
    timeline = next((one for one in facts.timelines if one.worker_id == worker_id), None) if facts else None
    left = None
    if one is None and timeline is None:
        left = await _left(site, worker_id)
    [row] = worker_rows([one], [timeline] if timeline else (), _by_worker(facts)) if one else [None]
    own = [count for count in facts.groups if count.group.worker_id == worker_id] if facts else []
    name = (
        one.registered.name if one else timeline.name if timeline else left.name if left else str(worker_id)
    )
    context = {
        "id": worker_id,
        "name": name,
        "row": row,
        "registered": one.registered if one else None,
        "left": None if left is None else left.at,
        "ended": one.ended_last_hour if one else None,
        "segments": [
            (*AVAILABILITIES[segment.availability], segment.since, segment.until)
            for segment in (reversed(timeline.segments) if timeline else ())
        ],
        "groups": group_rows(
            own, facts.timelines if facts else (), site.worker_names, ttl_seconds=site.world.ttl_seconds
        ),
        "has_record": facts is not None,
        "seen": seen,
        "outage": _dated(remembered.outage, seen),
    }
    title = f"{name} ({worker_id}): {row.word if row else 'no longer registered'}"
    return render("worker.html", site.shell(request, title, here="/workers"), context)


async def _left(site: Site, worker_id: int) -> Change:
    """Of one that has not been registered for a day: when it went, or why there is nothing to show."""
    left = await history_sql.last_change(site.world.database, worker_id)
    if left is not None:
        return left
    raise Refused(404, no_record_sentence(site.world.retention.history_seconds))


def _dated(outage: PageOutage | None, seen: WorkersKept | Unknown) -> PageOutage | None:
    """Where only the workers are kept, the figures are from when they were seen."""
    if outage is None or outage.kept_at is not None or isinstance(seen, Unknown):
        return outage
    return replace(outage, kept_at=seen.at)


def _by_worker(facts: WorkersFacts | None) -> Mapping[int, int] | None:
    if facts is None:
        return None
    letters: dict[int, int] = {}
    for count in facts.groups:
        if count.group.worker_id is not None:
            letters[count.group.worker_id] = letters.get(count.group.worker_id, 0) + count.letters
    return letters


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    id: int
    href: str
    name: str
    state: State
    word: str
    since: datetime | None
    heartbeat_at: datetime | None
    host: str
    consumers: str
    ready: str
    unacked: str
    letters: str
    manner: str
    """Whether an unavailable worker stopped cleanly; of another one that it is cordoned, or why to restart it."""
    is_silent_for_a_day: bool
    explanation: str


def worker_rows(
    workers: Sequence[ObservedWorker], timelines: Sequence[Timeline], letters: Mapping[int, int] | None
) -> Sequence[WorkerRow]:
    """`letters`: of the last hour, by worker; None: unknown. Who has been silent for a day comes last."""
    by_id = {timeline.worker_id: timeline for timeline in timelines}
    rows = [_row(one, by_id.get(one.registered.worker.id), letters) for one in workers]
    return sorted(rows, key=lambda row: (row.is_silent_for_a_day, _ORDER.index(row.state), row.name))


def _row(one: ObservedWorker, timeline: Timeline | None, letters: Mapping[int, int] | None) -> WorkerRow:
    registered = one.registered
    availability = one.standing.availability
    state, word = AVAILABILITIES[availability]
    is_unavailable = availability is Availability.UNAVAILABLE
    if is_unavailable and one.was_stopped and not one.is_missed:
        # It stopped in good order, and no execution waits for it.
        state, word = State.UNKNOWN, "stopped"
    restart = _RESTARTS.get(finding_of(one))
    if restart is not None:
        state, word = State.BAD, restart[0]
    return WorkerRow(
        id=registered.worker.id,
        href=f"/workers/{registered.worker.id}",
        name=registered.name,
        state=state,
        word=word,
        since=_since(one, timeline) if restart is None else _unconsumed_since(one),
        heartbeat_at=registered.worker.last_heartbeat,
        host=registered.host or UNKNOWN,
        consumers=_of_queue(one, "consumers"),
        ready=_of_queue(one, "ready"),
        unacked=_of_queue(one, "unacked"),
        letters=UNKNOWN if letters is None else thousands(letters.get(registered.worker.id, 0)),
        manner=_manner(one, is_unavailable=is_unavailable) if restart is None else restart[1],
        is_silent_for_a_day=is_silent_for_a_day(registered.worker),
        explanation=one.standing.explanation,
    )


def _since(one: ObservedWorker, timeline: Timeline | None) -> datetime | None:
    """None: unknown. Of an unavailable worker even a gap in observation does not hide it."""
    if one.standing.unavailable_since is not None:
        return one.standing.unavailable_since
    if (
        timeline is not None
        and timeline.segments
        and timeline.segments[-1].availability is one.standing.availability
    ):
        return timeline.segments[-1].since
    return None


def _unconsumed_since(one: ObservedWorker) -> datetime | None:
    return one.observation.unconsumed_since if one.observation else None


def _manner(one: ObservedWorker, *, is_unavailable: bool) -> str:
    if is_unavailable:
        return "stopped" if one.was_stopped else "no clean stop"
    if one.registered.is_cordoned:
        return f"cordoned: {one.registered.cordon_reason}" if one.registered.cordon_reason else "cordoned"
    return NONE


def _of_queue(one: ObservedWorker, name: str) -> str:
    """`?`: unknown. A missing queue is not an empty one."""
    if isinstance(one.queue, Unknown):
        return UNKNOWN
    if one.queue is None:
        return "no queue" if name == "consumers" else NONE
    return thousands(getattr(one.queue, name))
