"""The workers: who is there, since when, on which host, and what waits for whom; and one of them with its last day."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.domain.history import Change, Lane
from dlq_handler.domain.letter_group import GroupCount
from dlq_handler.domain.view import Unknown
from dlq_handler.store import happenings, history, letter_groups, swept
from dlq_handler.surface.dashboard import group_rows
from dlq_handler.surface.dashboard.kept import Away, WorkersKept
from dlq_handler.surface.dashboard.shell import render
from dlq_handler.surface.dashboard.site import Site
from dlq_handler.surface.dashboard.words import AVAILABILITIES, State
from dlq_handler.surface.dashboard.worker_rows import worker_rows
from dlq_handler.surface.swept import swept_worker_sentence
from dlq_handler.surface.web.errors import Refused

# Of a large fleet those that are well are unfolded: who looks here looks for the others.
WELL_SHOWN = 20
_MOST_GROUPS = 10_000
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersFacts:
    lanes: Sequence[Lane]
    groups: Sequence[GroupCount]
    """Of the last hour."""
    after: int


async def gather(site: Site) -> WorkersFacts:
    database, now = site.world.database, site.now
    return WorkersFacts(
        after=await happenings.latest_id(database),
        lanes=await history.lanes(database, since=now - _DAY, until=now),
        groups=await letter_groups.groups(database, since=now - _HOUR, until=now, limit=_MOST_GROUPS),
    )


async def workers_page(site: Site, request: Request) -> Response:
    remembered = await site.ask("/workers", lambda: gather(site))
    facts, seen = remembered.facts, site.workers
    rows = (
        ()
        if isinstance(seen, Unknown)
        else worker_rows(seen.workers, facts.lanes if facts else (), _by_worker(facts))
    )
    ill = [row for row in rows if not row.is_history and row.state is not State.OK]
    well = [row for row in rows if not row.is_history and row.state is State.OK]
    context = {
        "count": sum(not row.is_history for row in rows),
        "rows": [*ill, *well[:WELL_SHOWN]],
        "well": well[WELL_SHOWN:],
        "history": [row for row in rows if row.is_history],
        "unknown": seen.why if isinstance(seen, Unknown) else None,
        "seen": None if isinstance(seen, Unknown) else seen,
        "away": _dated(remembered.away, seen),
    }
    shell = site.shell(
        request, f"Workers · {site.headline().title}", here="/workers", after=facts.after if facts else None
    )
    is_fragment = request.query_params.get("fragment") == "rows"
    return render("fragments/workers.html" if is_fragment else "workers.html", shell, context)


async def worker_page(site: Site, request: Request, worker_id: int) -> Response:
    seen = site.workers
    if isinstance(seen, Unknown):
        raise Refused(503, f"What is known of workers cannot be told: {seen.why}. Try again in a moment.")
    one = next((one for one in seen.workers if one.registered.worker.id == worker_id), None)
    remembered = await site.ask("/workers", lambda: gather(site))
    facts = remembered.facts
    lane = next((lane for lane in facts.lanes if lane.worker_id == worker_id), None) if facts else None
    left = None
    if one is None and lane is None:
        left = await _left(site, worker_id)
    [row] = worker_rows([one], [lane] if lane else (), _by_worker(facts)) if one else [None]
    own = [count for count in facts.groups if count.group.worker_id == worker_id] if facts else []
    name = one.registered.name if one else lane.name if lane else left.name if left else str(worker_id)
    context = {
        "id": worker_id,
        "name": name,
        "row": row,
        "registered": one.registered if one else None,
        "left": None if left is None else left.at,
        "ended": one.ended_last_hour if one else None,
        "segments": [
            (*AVAILABILITIES[segment.availability], segment.since, segment.until)
            for segment in (reversed(lane.segments) if lane else ())
        ],
        "groups": group_rows.rows(
            own, facts.lanes if facts else (), site.worker_names, ttl_seconds=site.world.ttl_seconds
        ),
        "has_record": facts is not None,
        "seen": seen,
        "away": _dated(remembered.away, seen),
    }
    title = f"{name} ({worker_id}): {row.word if row else 'no longer registered'}"
    return render("worker.html", site.shell(request, title, here="/workers"), context)


async def _left(site: Site, worker_id: int) -> Change:
    """Of one that has not been registered for a day: when it went, or why there is nothing to show."""
    left = await history.last_change(site.world.database, worker_id)
    if left is not None:
        return left
    swept_at = await swept.worker_swept_at(site.world.database, worker_id)
    if swept_at is not None:
        raise Refused(410, swept_worker_sentence(worker_id, swept_at, site.world.retention))
    raise Refused(404, f"There is no worker {worker_id}: it was deleted, or is of another installation.")


def _dated(away: Away | None, seen: WorkersKept | Unknown) -> Away | None:
    """Where only the workers are kept, the figures are from when they were seen."""
    if away is None or away.kept_at is not None or isinstance(seen, Unknown):
        return away
    return replace(away, kept_at=seen.at)


def _by_worker(facts: WorkersFacts | None) -> Mapping[int, int] | None:
    if facts is None:
        return None
    letters: dict[int, int] = {}
    for count in facts.groups:
        if count.group.worker_id is not None:
            letters[count.group.worker_id] = letters.get(count.group.worker_id, 0) + count.letters
    return letters
