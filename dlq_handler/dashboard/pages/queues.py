"""The queues of the vhost: owner, state, contents, and what a stop would do with each."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard.shell import render
from dlq_handler.dashboard.site import Site
from dlq_handler.dashboard.words import NONE, UNKNOWN, State, thousands
from dlq_handler.errors import Unavailable
from dlq_handler.lifecycle.flow_summary import stop_preview
from dlq_handler.lifecycle.queue_list import OwnerKind, QueueRow, QueueStatus
from dlq_handler.lifecycle.queue_reader import ReadQueues

MOST_ROWS = 300

_STATES: Mapping[QueueStatus, tuple[State, str]] = {
    QueueStatus.OK: (State.OK, "ok"),
    QueueStatus.MISSING: (State.BAD, "missing"),
    QueueStatus.ABSENT: (State.UNKNOWN, "absent"),
    QueueStatus.DIFFERS: (State.WARN, "differs"),
    QueueStatus.LEAKED: (State.BAD, "leaked"),
    QueueStatus.UNKNOWN: (State.UNKNOWN, "unknown"),
}
_ORDER = (State.BAD, State.WARN, State.UNKNOWN, State.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLine:
    name: str
    owner: str
    owner_href: str | None
    state: State
    word: str
    ready: str
    consumers: str
    explanation: str | None
    on_stop: str


async def queues_page(site: Site, request: Request) -> Response:
    found, error = await _read(site)
    rows = [row for row in found.rows if row.status is not QueueStatus.ABSENT] if found else []
    lines = sorted((queue_line(row, found) for row in rows), key=lambda one: _ORDER.index(one.state))
    context = {
        "rows": lines[:MOST_ROWS],
        "count": len(lines),
        "more": thousands(len(lines) - MOST_ROWS) if len(lines) > MOST_ROWS else None,
        "absent": len(found.rows) - len(rows) if found else 0,
        "limits": found.limits if found else (),
        "read_at": found.at if found else None,
        "unknown": error,
    }
    shell = site.shell(request, f"Queues · {site.headline().title}", here="/queues")
    return render("queues.html", shell, context)


async def _read(site: Site) -> tuple[ReadQueues | None, str | None]:
    try:
        return await site.world.services.read_queues(), None
    except (Unavailable, TimeoutError) as error:
        return None, str(error) or "the broker did not answer in time"


def queue_line(row: QueueRow, found: ReadQueues | None) -> QueueLine:
    state, word = _STATES[row.status]
    return QueueLine(
        name=row.name,
        owner=UNKNOWN if row.owner is None else row.owner,
        owner_href=_href(row),
        state=state,
        word=word,
        ready=_count(row, row.ready),
        consumers=_count(row, row.consumers),
        explanation=row.explanation,
        on_stop=_on_stop(row, found),
    )


def _href(row: QueueRow) -> str | None:
    owner = row.owner or ""
    if row.owner_kind is OwnerKind.FLOW:
        # A shared queue belongs to a blueprint.
        return None if " " in owner else f"/flows/{owner}"
    kind, _, name = owner.partition(" ")
    return f"/workers/{name}" if kind == "worker" and name.isdecimal() else None


def _count(row: QueueRow, count: int | None) -> str:
    return NONE if row.exists is False else thousands(count)


def _on_stop(row: QueueRow, found: ReadQueues | None) -> str:
    queue = None if found is None else found.flow_queues.get(row.name)
    if queue is not None:
        return stop_preview(queue, ready=row.ready)
    return "never deleted" if row.owner_kind is not OwnerKind.OTHER else "left alone: its owner is unknown"
