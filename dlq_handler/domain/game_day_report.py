"""What a game day showed: was the execution rescued, how long did each step take, and if not, what to do. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dlq_handler.domain.failure_result import FAILED_BY
from dlq_handler.domain.game_day import GameDayPlan, Seen, SeenNotice
from dlq_handler.domain.letter_record import LetterRecord
from dlq_handler.domain.story_records import clock
from dlq_handler.domain.verdict import Outcome

OWN_INTAKE = (
    "set dlq_handler.intake.queue to a queue of our own, such as attune.dlx.sidecar.queue: a stock executor "
    "takes letters from attune.dlx.queue, fails executions and tells nobody"
)
LOOK_AT_READYZ = "the sidecar's /readyz and its log say what holds it up"


class Conclusion(StrEnum):
    RESCUED = "rescued"
    NOT_RESCUED = "not rescued"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    at: datetime
    took_seconds: float | None
    """Since the step before; None for the first."""
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GameDayReport:
    conclusion: Conclusion
    why: str
    advice: str | None
    execution_id: int | None
    letter_id: int | None
    queue: str
    ttl_ms: int
    limit_seconds: float
    steps: Sequence[Step]
    clock_error_seconds: float
    """By so much the moments seen by us may differ from those of the database."""
    left_behind: Sequence[str] = ()
    """What could not be removed; the next game day tries again."""


def report(plan: GameDayPlan, seen: Seen, *, left_behind: Sequence[str] = ()) -> GameDayReport:
    letter = _letter(seen)
    conclusion, why, advice = _conclude(plan, seen, letter)
    return GameDayReport(
        conclusion=conclusion,
        why=why,
        advice=advice,
        execution_id=seen.execution_id,
        letter_id=letter.id if letter else None,
        queue=plan.queue,
        ttl_ms=plan.ttl_ms,
        limit_seconds=plan.limit_seconds,
        steps=_steps(plan, seen, letter),
        clock_error_seconds=seen.clock_error_seconds,
        left_behind=tuple(left_behind),
    )


def _letter(seen: Seen) -> LetterRecord | None:
    """The one that decided, if there are more: a shadow's record decides nothing."""
    letters = seen.records.letters if seen.records else ()
    real = [letter for letter in letters if not letter.is_shadow]
    return next(iter(real or letters), None)


def _steps(plan: GameDayPlan, seen: Seen, letter: LetterRecord | None) -> tuple[Step, ...]:
    moments: list[tuple[str, datetime | None, str]] = [
        ("dispatched", seen.dispatched_at, f"execution {seen.execution_id} into {plan.queue}"),
        ("expired", seen.expired_at, f"by the queue's TTL; x-death says {clock(seen.death_time)}"),
    ]
    if letter is not None:
        what = f"{letter.outcome.value} by {letter.instance}: {letter.why}"
        moments.append(("judged", letter.judged_at, what))
    if seen.notice is not None:
        moments.append(("announced", seen.notice.at, f"{plan.notice_key} by {seen.notice.by or 'somebody'}"))
    steps: list[Step] = []
    for name, at, what in moments:
        if at is None:
            continue
        # Two clocks: what happened within their error of one another must not seem to go backwards.
        took = max(0.0, (at - steps[-1].at).total_seconds()) if steps else None
        steps.append(Step(name=name, at=at, took_seconds=took, what=what))
    return tuple(steps)


def _conclude(
    plan: GameDayPlan, seen: Seen, letter: LetterRecord | None
) -> tuple[Conclusion, str, str | None]:
    if seen.trouble is not None:
        return Conclusion.CANNOT_TELL, seen.trouble, None
    execution = seen.records.execution if seen.records else None
    if seen.execution_id is not None and execution is None:
        return Conclusion.CANNOT_TELL, "the execution's row is gone: somebody deleted it meanwhile", None
    if execution is None:
        return Conclusion.NOT_RESCUED, *_why_nobody_takes(plan, seen)
    if letter is not None and letter.outcome is Outcome.FAILED and execution.ended_by == FAILED_BY:
        if seen.notice is not None:
            return Conclusion.RESCUED, "failed by its letter, and announced", None
        return Conclusion.NOT_RESCUED, *_why_not_announced(plan, seen)
    if execution.is_terminal:
        return Conclusion.NOT_RESCUED, *_who_else_ended(execution.ended_by, seen.notice)
    if seen.expired_at is None:
        why = f"nothing came out of exchange {plan.blueprint.dead_letter_exchange!r} within {_limit(plan)}"
        return Conclusion.NOT_RESCUED, why, "`dlq-handler topology check` looks for the hole"
    if letter is not None and letter.is_shadow:
        return Conclusion.NOT_RESCUED, "the sidecar only shadows: it judges copies and ends nothing", None
    if letter is not None:
        return Conclusion.NOT_RESCUED, f"its letter was judged {letter.outcome.value}: {letter.why}", None
    return Conclusion.NOT_RESCUED, *_why_not_judged(plan, seen)


def _why_nobody_takes(plan: GameDayPlan, seen: Seen) -> tuple[str, str | None]:
    """Before anything was begun."""
    intake = plan.blueprint.intake_queue
    if seen.consumers is None:
        return (
            f"there is no queue {intake!r}: no sidecar has run here with these settings; nothing was created",
            "start one (`dlq-handler run`) with the same settings as this command",
        )
    return f"nobody takes letters from {intake!r}; nothing was created", _who_should_take(seen)


def _who_should_take(seen: Seen) -> str:
    if seen.brake is not None:
        return f"the brake holds: {seen.brake}"
    return (
        "start a sidecar (`dlq-handler run`) with the same settings as this command; if one runs, "
        f"{LOOK_AT_READYZ}"
    )


def _why_not_judged(plan: GameDayPlan, seen: Seen) -> tuple[str, str | None]:
    waits = f"its letter was not judged within {_limit(plan)}"
    if not seen.consumers:
        return (
            f"{waits}: nobody takes letters from {plan.blueprint.intake_queue!r} any more",
            _who_should_take(seen),
        )
    return waits, f"the brake holds: {seen.brake}" if seen.brake else LOOK_AT_READYZ


def _who_else_ended(ended_by: str | None, notice: SeenNotice | None) -> tuple[str, str | None]:
    if ended_by is None:
        announced = f"only {notice.by or 'somebody'} announced it, later" if notice else "nobody announced it"
        return f"a stock executor took the letter, failed it and was silent; {announced}", OWN_INTAKE
    return f"it was ended by {ended_by}, not by its letter", LOOK_AT_READYZ


def _why_not_announced(plan: GameDayPlan, seen: Seen) -> tuple[str, str | None]:
    entries = seen.records.outbox if seen.records else ()
    confirmed = [entry for entry in entries if entry.confirmed_at is not None]
    if confirmed:
        return (
            f"failed by its letter, and its notice was confirmed, but not with key {plan.notice_key!r}",
            "the sidecar has another dlq_handler.outbox.routing_key or exchange than this command",
        )
    error = next((entry.last_error for entry in entries if entry.last_error), None)
    told = f": {error}" if error else ""
    return f"failed by its letter, but not announced within {_limit(plan)}{told}", LOOK_AT_READYZ


def _limit(plan: GameDayPlan) -> str:
    return f"{plan.limit_seconds:g} s of its expiry"
