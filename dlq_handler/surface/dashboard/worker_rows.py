"""Workers as rows of a table: those that are not well first. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.domain.availability import Availability, is_history
from dlq_handler.domain.history import Lane
from dlq_handler.domain.view import Unknown, WorkerSeen
from dlq_handler.surface.dashboard.words import AVAILABILITIES, NONE, UNKNOWN, State, thousands

_ORDER = (State.BAD, State.WARN, State.UNKNOWN, State.OK)


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
    """How it went: `stopped` by itself, or `vanished`; for one that is there, cordoned or not."""
    is_history: bool
    why: str


def worker_rows(
    workers: Sequence[WorkerSeen], lanes: Sequence[Lane], letters: Mapping[int, int] | None
) -> Sequence[WorkerRow]:
    """`letters`: of the last hour, by worker; None: unknown. Who has been silent for a day comes last."""
    by_id = {lane.worker_id: lane for lane in lanes}
    rows = [_row(one, by_id.get(one.registered.worker.id), letters) for one in workers]
    return sorted(rows, key=lambda row: (row.is_history, _ORDER.index(row.state), row.name))


def _row(one: WorkerSeen, lane: Lane | None, letters: Mapping[int, int] | None) -> WorkerRow:
    registered = one.registered
    availability = one.standing.availability
    state, word = AVAILABILITIES[availability]
    is_gone = availability is Availability.UNAVAILABLE
    if is_gone and one.was_stopped and not one.is_missed:
        # Nobody waits for it, and it said that it goes: nothing is wrong with it.
        state, word = State.UNKNOWN, "stopped"
    return WorkerRow(
        id=registered.worker.id,
        href=f"/workers/{registered.worker.id}",
        name=registered.name,
        state=state,
        word=word,
        since=_since(one, lane),
        heartbeat_at=registered.worker.last_heartbeat,
        host=registered.host or UNKNOWN,
        consumers=_of_queue(one, "consumers"),
        ready=_of_queue(one, "ready"),
        unacked=_of_queue(one, "unacked"),
        letters=UNKNOWN if letters is None else thousands(letters.get(registered.worker.id, 0)),
        manner=_manner(one, is_gone=is_gone),
        is_history=is_history(registered.worker),
        why=one.standing.why,
    )


def _since(one: WorkerSeen, lane: Lane | None) -> datetime | None:
    """Since when it is in this state. An unavailable worker is so since its heartbeat became too old, as `status` says;
    other states begin when they were recorded.
    """
    if one.standing.availability is Availability.UNAVAILABLE and one.standing.gone_since is not None:
        return one.standing.gone_since
    if lane is not None and lane.segments and lane.segments[-1].availability is one.standing.availability:
        return lane.segments[-1].since
    return one.standing.gone_since


def _manner(one: WorkerSeen, *, is_gone: bool) -> str:
    if is_gone:
        return "stopped" if one.was_stopped else "vanished"
    if one.registered.is_cordoned:
        return f"cordoned: {one.registered.cordon_reason}" if one.registered.cordon_reason else "cordoned"
    return NONE


def _of_queue(one: WorkerSeen, name: str) -> str:
    """`?` where the broker did not say; no queue is not an empty one."""
    if isinstance(one.queue, Unknown):
        return UNKNOWN
    if one.queue is None:
        return "no queue" if name == "consumers" else NONE
    return thousands(getattr(one.queue, name))
