"""The path of one dead letter in five boxes (queue, DLX, DLQ, decision, event), and in one sentence. Pure.

Each box has its time and the time since the box before. A failed step is red with its reason. An unknown step has a
question mark, and never counts as done.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dlq_handler.dashboard.words import UNKNOWN, State, lapse, moment, with_full_stop
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.letter import RESCUED
from dlq_handler.dead_letters.listing import LetterRecord
from dlq_handler.explain.records import OutboxRecord
from dlq_handler.topology.blueprint import RETIRED_QUEUE

# A completion event is published within a second of its commit. After this time it is stuck.
_STUCK = timedelta(seconds=60)
# A completion event has the time of its transaction's begin, a decision that replaces another the time of writing.
_SAME_CHANGE = timedelta(seconds=30)
# The broker dates a death in whole seconds.
_WHOLE_SECOND = 1.0

_DEATHS = {
    "expired": "Expired",
    "rejected": "Rejected",
    "maxlen": "Pushed out, as the queue was full,",
    "delivery_limit": "Delivered too often",
    RESCUED: "Taken before it expired, as the worker is unavailable,",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    step: str
    state: State
    what: str
    when: str = ""
    delta: str | None = None
    """Since the box before; None for the first, and where one of the two is unknown."""
    explanation: str | None = None


def completion_event_of(
    record: LetterRecord, outbox: Sequence[OutboxRecord], *, completed_key: str
) -> OutboxRecord | None:
    """The completion event of this decision. The outbox also has requests, and events of other endings.

    An event that was confirmed before the decision belongs to another one.
    """
    own = [
        one
        for one in outbox
        if one.routing_key == completed_key
        and abs(one.created_at - record.decided_at) <= _SAME_CHANGE
        and (one.confirmed_at is None or one.confirmed_at >= record.decided_at)
    ]
    return min(own, key=lambda one: abs(one.created_at - record.decided_at), default=None)


def path(
    record: LetterRecord, event: OutboxRecord | None, *, intake: str | None, now: datetime
) -> Sequence[Box]:
    """`event`: from `completion_event_of`; None: it is not on record."""
    return (
        _queue(record, now),
        _exchange(record, now),
        _intake(record, intake, now),
        _decision(record, now),
        _completion_event(record, event, now),
    )


def _queue(record: LetterRecord, now: datetime) -> Box:
    queue = record.first_death_queue or record.queue
    return Box(
        step="Queue",
        state=State.OK if queue else State.UNKNOWN,
        what=queue or UNKNOWN,
        when=moment(record.attempt_updated_at, now),
        explanation=None if queue else "no death is on record",
    )


def _exchange(record: LetterRecord, now: datetime) -> Box:
    is_known = record.died_at is not None
    return Box(
        step="DLX",
        state=State.OK if is_known else State.UNKNOWN,
        what=record.exchange or "default exchange",
        when=moment(record.died_at, now),
        delta=_between(record.attempt_updated_at, record.died_at, slack=_WHOLE_SECOND),
        explanation=record.reason if is_known else "no death is on record",
    )


def _intake(record: LetterRecord, intake: str | None, now: datetime) -> Box:
    again = (
        f"delivered {record.repeats} times more, last {moment(record.repeated_at, now)}"
        if record.repeats
        else None
    )
    return Box(
        step="DLQ",
        state=State.OK,
        what=intake or "intake queue",
        when=moment(record.received_at, now),
        delta=_between(record.died_at, record.received_at, slack=_WHOLE_SECOND),
        explanation=again,
    )


def _decision(record: LetterRecord, now: datetime) -> Box:
    is_done = record.outcome.is_resolved
    again = f"; reprocessed at {moment(record.next_attempt_at, now)}" if record.next_attempt_at else ""
    return Box(
        step="Decision",
        state=State.OK if is_done else State.BAD,
        what=record.outcome.value.replace("_", " "),
        when=moment(record.decided_at, now),
        delta=_between(record.received_at, record.decided_at),
        explanation=f"{record.error or record.explanation}{again}",
    )


def _completion_event(record: LetterRecord, event: OutboxRecord | None, now: datetime) -> Box:
    if record.is_shadow or record.outcome is not Outcome.FAILED:
        explanation = (
            "shadow mode publishes nothing"
            if record.is_shadow
            else "no execution was ended, so there is no event"
        )
        return Box(step="Event", state=State.UNKNOWN, what="none", explanation=explanation)
    if event is None:
        explanation = "deleted by retention, or never written"
        return Box(step="Event", state=State.UNKNOWN, what=UNKNOWN, when=UNKNOWN, explanation=explanation)
    if event.confirmed_at is None:
        is_stuck = now - event.created_at > _STUCK
        return Box(
            step="Event",
            state=State.BAD if is_stuck else State.WARN,
            what=event.routing_key,
            when="not confirmed yet",
            explanation=event.error or "no replica has published it yet",
        )
    return Box(
        step="Event",
        state=State.WARN if event.is_withheld else State.OK,
        what=event.routing_key,
        when=moment(event.confirmed_at, now),
        delta=_between(record.decided_at, event.confirmed_at),
        explanation=event.error if event.is_withheld else None,
    )


def in_one_sentence(record: LetterRecord, event: OutboxRecord | None) -> str:
    parts = [_death(record), _outcome(record)]
    if record.outcome is Outcome.FAILED and not record.is_shadow and event is not None:
        if event.confirmed_at is None:
            parts.append("completion event not published yet")
        elif not event.is_withheld:
            parts.append(
                f"completion event published {lapse((event.confirmed_at - record.decided_at).total_seconds())} later"
            )
    shadow = "Shadow, nothing was done: " if record.is_shadow else ""
    return with_full_stop(shadow + "; ".join(parts))


def _death(record: LetterRecord) -> str:
    if record.queue == RETIRED_QUEUE and record.reason == RESCUED:
        return "Sent to a worker or flow that was retired, and received from the retired queue"
    word = _DEATHS.get(record.reason)
    if word is None:
        return "Came without a death on record" if record.died_at is None else f"Died of {record.reason!r}"
    waited = ""
    if record.reason == "expired" and record.attempt_updated_at and record.died_at:
        waited = f" after {lapse((record.died_at - record.attempt_updated_at).total_seconds())}"
    return f"{word}{waited} in {record.first_death_queue or record.queue or 'some queue'}"


def _outcome(record: LetterRecord) -> str:
    execution = f"execution {record.execution_id}"
    match record.outcome:
        case Outcome.FAILED:
            return f"{execution} marked failed"
        case Outcome.ALREADY_TERMINAL:
            return f"{execution} had ended already"
        case Outcome.STALE_ATTEMPT:
            return f"of an earlier attempt of {execution}, which was left alone"
        case Outcome.SUPERSEDED:
            return f"{execution} was back with the scheduler, which sends it again; it was left alone"
        case Outcome.LEFT_TO_MONITOR:
            return f"{execution} is left to the monitor"
        case Outcome.UNKNOWN_EXECUTION:
            return f"there is no {execution}, so it is kept"
        case Outcome.UNRELATED:
            return "no dispatch of an execution, so it is kept"
        case Outcome.UNREADABLE:
            return "could not be read, so it is kept"
        case Outcome.UPDATE_FAILED:
            return f"the database refused to change {execution}, so it is kept"
        case Outcome.DEFERRED:
            return f"{execution} is not decided yet; dlq-handler decides it from this record"
        case Outcome.ARCHIVED:
            return "no dispatch of an execution, and its queue was retired, so it is archived"


def _between(before: datetime | None, after: datetime | None, *, slack: float = 0.0) -> str | None:
    """May be negative: it then shows a wrong clock, or a fault of dlq-handler.

    `slack`: so many seconds are the clock's coarseness, and no news.
    """
    if before is None or after is None:
        return None
    seconds = (after - before).total_seconds()
    return f"−{lapse(-seconds)}" if seconds < -slack else f"+{lapse(max(0.0, seconds))}"
