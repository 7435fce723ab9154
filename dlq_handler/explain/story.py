"""The story of one execution: what happened to it, in order of time, by which component and why. Pure.

Built from what is on record: a history without the right to read it, or deleted records, make the story shorter, never
wrong. Times are by the database's clock; the time of a death is by the broker's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from dlq_handler.dead_letters.decision import FAILED_BY, Outcome
from dlq_handler.dead_letters.listing import LetterRecord
from dlq_handler.explain.records import OutboxRecord, Records, clock
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.story_sql import ExecutionFacts, Transition
from dlq_handler.timeouts.decide_unpublished import unpublished_text
from dlq_handler.timeouts.decision import StaleOutcome, StaleRecord

# A decision is dated by the clock, the row by the beginning of its transaction: a little earlier.
_SAME_CHANGE = timedelta(seconds=30)


class Kind(StrEnum):
    """In the order in which things of one moment happen."""

    CREATED = "created"
    DISPATCHED = "dispatched"
    MOVED = "moved"
    DEAD_LETTERED = "dead_lettered"
    DECIDED = "decided"
    CHANGED = "changed"
    PUBLISHED = "published"
    """A message of the outbox: a completion event, or a request to schedule."""
    UNCONFIRMED = "unconfirmed"
    REVERTED_BY_WORKER = "reverted_by_worker"
    ENDED = "ended"
    TOUCHED = "touched"
    """The row changed, its status did not: deleting a worker changes every row that it had."""


_ORDER = {kind: place for place, kind in enumerate(Kind)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    at: datetime
    kind: Kind
    text: str
    status: str | None = None
    """The status that the row took with this move; None: the moment is no move."""
    by: str | None = None
    """The replica, or the component that signed the result; None: the host, or unknown."""
    is_shadow: bool = False
    evidence: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """A change of status by dlq-handler."""

    at: datetime
    before: str
    after: str
    by: str


def story_of(records: Records) -> list[Moment]:
    changes = list(_our_changes(records))
    moments = [
        *_host_moments(records, changes),
        *(moment for letter in records.letters for moment in _letter_moments(letter)),
        *(_decision_moment(decision) for decision in records.decisions),
        *(_change_moment(change) for change in changes),
        *(_outbox_moment(entry) for entry in records.outbox),
        *_unpublished_moments(records),
    ]
    return sorted(moments, key=lambda moment: (moment.at, _ORDER[moment.kind]))


def _our_changes(records: Records) -> Iterator[_Change]:
    for letter in records.letters:
        if letter.outcome is Outcome.FAILED and not letter.is_shadow:
            before = str(letter.evidence.get("status", "open"))
            yield _Change(
                at=letter.decided_at, before=before, after=ExecutionStatus.FAILED.value, by=letter.replica
            )
    for decision in records.decisions:
        becomes = decision.outcome.becomes
        if becomes is not None and not decision.is_shadow:
            yield _Change(
                at=decision.decided_at,
                before=decision.original_status,
                after=becomes.value,
                by=decision.replica,
            )


def _host_moments(records: Records, changes: list[_Change]) -> Iterator[Moment]:
    """What the host did: from its history, from its row and from the dead letters."""
    execution, history = records.execution, records.history or ()
    changed_at = {step.at for step in history if step.before is not None}
    if execution is not None and not any(step.before is None for step in history):
        yield Moment(at=execution.created, kind=Kind.CREATED, text=_created(execution))
    for step in history:
        if not any(_is_the_change(step.at, step.after, change) for change in changes):
            yield _step_moment(step, execution, is_last=step is history[-1])
    for attempt_updated_at, worker_id in _stamps(records).items():
        if attempt_updated_at not in changed_at:
            yield _dispatched(attempt_updated_at, worker_id)
    if execution is not None and execution.updated not in changed_at:
        yield from _row_moments(execution, history, changes)


def _stamps(records: Records) -> dict[datetime, int | None]:
    """The attempts that dead letters tell of: each carries the moment it was scheduled."""
    return {
        letter.attempt_updated_at: letter.worker_id
        for letter in records.letters
        if letter.attempt_updated_at is not None
    }


def _row_moments(
    execution: ExecutionFacts, history: Sequence[Transition], changes: list[_Change]
) -> Iterator[Moment]:
    """What the row shows beyond the history."""
    if any(_is_the_change(execution.updated, execution.status, change) for change in changes):
        return
    before = _known_before(execution, history, changes)
    is_own_change = isinstance(before, _Change)
    is_same = before is not None and before.after == execution.status
    if is_same and is_own_change and execution.is_terminal and execution.ended_by != FAILED_BY:
        text = f"{execution.status}, with another's result{_error(execution)}"
        yield Moment(at=execution.updated, kind=Kind.ENDED, text=text, by=execution.ended_by)
    elif is_same:
        yield Moment(at=execution.updated, kind=Kind.TOUCHED, text=f"still {execution.status}")
    elif execution.status == ExecutionStatus.RUNNING and execution.started_at is not None:
        text = f"{execution.status}{_on_worker(execution.worker_id)}"
        yield Moment(at=execution.started_at, kind=Kind.MOVED, text=text, status=execution.status)
    elif execution.is_terminal:
        yield _ended(execution, execution.updated)
    elif execution.status == ExecutionStatus.SCHEDULED and execution.worker_id is None:
        # A scheduler writes both at once: the worker was deleted since, which is no dispatch.
        yield Moment(at=execution.updated, kind=Kind.TOUCHED, text="still scheduled, its worker deleted")
    elif execution.status == ExecutionStatus.SCHEDULED:
        yield _dispatched(execution.updated, execution.worker_id)
    elif execution.updated != execution.created:
        yield Moment(at=execution.updated, kind=Kind.MOVED, text=execution.status, status=execution.status)


def _known_before(
    execution: ExecutionFacts, history: Sequence[Transition], changes: list[_Change]
) -> Transition | _Change | None:
    """The last change of status before the row took its present `updated`: in the host's history, or by dlq-handler."""
    known: list[Transition | _Change] = [*history, *changes]
    return max((one for one in known if one.at < execution.updated), key=lambda one: one.at, default=None)


def _step_moment(step: Transition, execution: ExecutionFacts | None, *, is_last: bool) -> Moment:
    if step.before is None:
        text = _created(execution) if execution is not None else step.after
        return Moment(at=step.at, kind=Kind.CREATED, text=text)
    if step.after == ExecutionStatus.SCHEDULED:
        return _dispatched(step.at, step.worker_id)
    if is_last and execution is not None and execution.is_terminal and execution.status == step.after:
        return _ended(execution, step.at)
    return Moment(
        at=step.at,
        kind=Kind.MOVED,
        text=f"{step.before} → {step.after}{_on_worker(step.worker_id)}",
        status=step.after,
    )


def _letter_moments(letter: LetterRecord) -> Iterator[Moment]:
    evidence = dict(letter.evidence)
    if letter.died_at is not None:
        x_death = evidence.pop("x_death", None)
        yield Moment(
            # The broker reports whole seconds, by its own clock: no dispatch died before it was sent.
            at=max(letter.died_at, letter.attempt_updated_at or letter.died_at),
            kind=Kind.DEAD_LETTERED,
            text=f"in {letter.queue or 'some queue'}: {letter.reason}",
            evidence={"x_death": x_death} if x_death else {},
        )
    last = f", last at {clock(letter.repeated_at)}" if letter.repeated_at else ""
    times = "once" if letter.repeats == 1 else f"{letter.repeats} times"
    again = f", delivered again {times}{last}" if letter.repeats else ""
    retry = f"; reprocessed at {clock(letter.next_attempt_at)}" if letter.next_attempt_at else ""
    error = f" ({letter.error})" if letter.error else ""
    yield Moment(
        at=letter.decided_at,
        kind=Kind.DECIDED,
        text=f"dead letter {letter.id}{again}: {letter.outcome}: {letter.explanation}{error}{retry}",
        by=letter.replica,
        is_shadow=letter.is_shadow,
        evidence=evidence,
    )


def _decision_moment(decision: StaleRecord) -> Moment:
    return Moment(
        at=decision.decided_at,
        kind=Kind.REVERTED_BY_WORKER if decision.outcome is StaleOutcome.REVERTED_BY_WORKER else Kind.DECIDED,
        text=_decision_text(decision),
        by=decision.replica,
        is_shadow=decision.is_shadow,
        evidence=decision.evidence,
    )


def _decision_text(decision: StaleRecord) -> str:
    match decision.outcome:
        case StaleOutcome.FAILED | StaleOutcome.ABANDONED | StaleOutcome.CANCELLED:
            return f"the monitor: {decision.outcome}: {decision.explanation}"
        case StaleOutcome.REQUEST_REPUBLISHED:
            return f"requested again: {decision.explanation}"
        case StaleOutcome.COMPLETION_PUBLISHED:
            return f"its completion event is to be published: {decision.explanation}"
        case StaleOutcome.REVERTED_BY_WORKER:
            return f"continued by its worker: {decision.explanation}"
        case StaleOutcome.UPDATE_FAILED:
            retry = f"; tried again at {clock(decision.next_attempt_at)}" if decision.next_attempt_at else ""
            return f"the monitor: {decision.explanation}: {decision.error}{retry}"
        case _:
            assert_never(decision.outcome)


def _change_moment(change: _Change) -> Moment:
    return Moment(
        at=change.at,
        kind=Kind.CHANGED,
        text=f"{change.before} → {change.after}, by dlq-handler",
        by=change.by,
    )


def _outbox_moment(entry: OutboxRecord) -> Moment:
    evidence = {"message_id": entry.message_id, "attempts": entry.attempts}
    if entry.confirmed_at is not None and entry.is_withheld:
        text = f"{entry.routing_key} was {entry.error}"
        return Moment(at=entry.confirmed_at, kind=Kind.PUBLISHED, text=text, evidence=evidence)
    if entry.confirmed_at is not None:
        attempts = "" if entry.attempts <= 1 else f" at attempt {entry.attempts}"
        text = f"{entry.routing_key} published, confirmed by the broker{attempts}"
        return Moment(at=entry.confirmed_at, kind=Kind.PUBLISHED, text=text, evidence=evidence)
    text = f"{entry.routing_key} is not confirmed yet: {_why_unconfirmed(entry)}"
    return Moment(at=entry.created_at, kind=Kind.UNCONFIRMED, text=text, evidence=evidence)


def _unpublished_moments(records: Records) -> Iterator[Moment]:
    one = records.unpublished
    if one is not None:
        end = one.end
        yield Moment(
            at=end.execution.updated,
            kind=Kind.UNCONFIRMED,
            text=unpublished_text(one),
            evidence=end.evidence,
        )


def _why_unconfirmed(entry: OutboxRecord) -> str:
    if entry.lease_holder is not None and entry.lease_until is not None:
        return f"held for publishing by {entry.lease_holder} until {clock(entry.lease_until)}"
    if entry.error is not None:
        return f"{entry.error} at attempt {entry.attempts}; tried again at {clock(entry.next_attempt_at)}"
    return "no replica has claimed it; is one running?"


def _is_the_change(at: datetime, status: str, change: _Change) -> bool:
    # Never later than the decision: a change right after it is by a late worker.
    return status == change.after and timedelta() <= change.at - at <= _SAME_CHANGE


def _created(execution: ExecutionFacts) -> str:
    parent = f", task of execution {execution.parent_id}" if execution.parent_id is not None else ""
    retry = f", retry of execution {execution.retry_of}" if execution.retry_of is not None else ""
    return f"{execution.action_ref}{parent}{retry}"


def _dispatched(at: datetime, worker_id: int | None) -> Moment:
    """Its time is the stamp of this attempt, so it is given to the microsecond."""
    text = f"to worker {worker_id}" if worker_id is not None else "to a worker"
    return Moment(at=at, kind=Kind.DISPATCHED, text=text, evidence={"attempt": at.isoformat()})


def _on_worker(worker_id: int | None) -> str:
    return f" on worker {worker_id}" if worker_id is not None else ""


def _ended(execution: ExecutionFacts, at: datetime) -> Moment:
    """An end that dlq-handler has no record of: by another component, or deleted by retention."""
    if execution.ended_by == FAILED_BY:
        text = f"{execution.status}, by dlq-handler"
    elif (
        execution.ended_by is None
        and execution.status == ExecutionStatus.COMPLETED
        and execution.worker_id is not None
    ):
        # A worker signs no result, and only workers complete what was dispatched to one.
        text = f"{execution.status}, by worker {execution.worker_id}{_error(execution)}"
    else:
        text = f"{execution.status}, by another component{_error(execution)}"
    return Moment(at=at, kind=Kind.ENDED, text=text, by=execution.ended_by)


def _error(execution: ExecutionFacts) -> str:
    return f": {execution.error}" if execution.error else ""
