"""Say in words why an execution that has not ended is still waiting. Pure.

Promises nothing that nobody is there to keep: who should look for it, and what holds them, is said with every decision.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import assert_never

from dlq_handler.explain.records import Records, Waiting, clock
from dlq_handler.explain.replicas import Sidecars
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.safety.brake import BrakeMode
from dlq_handler.timeouts.case import StaleCase
from dlq_handler.timeouts.decide_unscheduled import WITH_THE_SCHEDULER, UnscheduledDecision
from dlq_handler.timeouts.decision import AnnounceAgain, End, NotStale, StaleOutcome, StaleRecord, Wait
from dlq_handler.workers.look import is_empty, is_unattended

GATE_IS_UNKNOWN = "whether the gate is open, only the running sidecars know: their /readyz tells"
RESTART_IS_HIDDEN = (
    "a restart of the worker under its name is not detected: dlq_handler.worker.reconnects is true; set it to false "
    "if the worker never reconnects, as Attune's do not"
)
BROKER_IS_AWAY = "nothing scheduled is ended while the broker cannot be asked about the queue of its worker"

# What the one who asks takes for granted, as nobody has watched for it: no evidence.
_ASSUMED = {"watched_seconds", "scheduler_queue_quiet_seconds", "publishes"}


def waiting_of(
    decision: UnscheduledDecision, *, records: Records, sidecars: Sidecars, case: StaleCase | None = None
) -> Waiting:
    """`decision`: what the monitor would say now. `case`: the facts it was decided by, if it was dispatched."""
    unwatched, notes = sidecars.unwatched, sidecars.notes
    decisions = _of_this_attempt(records)
    refused = [one for one in decisions if one.outcome is StaleOutcome.UPDATE_FAILED]
    notes += [f"the database refused to let it end: {one.error}" for one in refused]
    match decision:
        case Wait(explanation=explanation, until=until, evidence=evidence):
            is_away = _is_broker_away(case)
            if _is_restart_hidden(case):
                notes = [*notes, RESTART_IS_HIDDEN]
            return Waiting(
                explanation=_why_it_waits(explanation, until, case, records, unwatched),
                unwatched=unwatched,
                until=until,
                # The horizon is not known either: the queue may give its messages more time than the settings say.
                is_earliest=is_away or sidecars.brake_mode is BrakeMode.HOLDING,
                notes=[*notes, BROKER_IS_AWAY] if is_away else notes,
                evidence=_seen(evidence, case),
            )
        case NotStale(explanation=explanation):
            return Waiting(explanation=f"not for us to end: {explanation}", notes=notes)
        case AnnounceAgain(explanation=explanation, evidence=evidence):
            promise = _promise(decision, decisions, sidecars)
            return Waiting(
                explanation=f"{promise}: {explanation}",
                unwatched=unwatched,
                notes=notes,
                evidence=_seen(evidence, case),
            )
        case End(explanation=explanation, evidence=evidence):
            times = [one.next_attempt_at for one in refused if one.next_attempt_at is not None]
            if sidecars.brake_mode is BrakeMode.HOLDING and sidecars.brake.state.hold_until is not None:
                times.append(sidecars.brake.state.hold_until)
            return Waiting(
                explanation=f"{_promise(decision, decisions, sidecars)}: {explanation}",
                unwatched=unwatched,
                until=max(times, default=None),
                is_earliest=sidecars.brake_mode is BrakeMode.HOLDING,
                notes=notes if unwatched else [*notes, GATE_IS_UNKNOWN],
                evidence=_seen(evidence, case),
            )
        case _:
            assert_never(decision)


def _of_this_attempt(records: Records) -> list[StaleRecord]:
    attempt_updated_at = records.execution.updated if records.execution else None
    return [one for one in records.decisions if one.attempt_updated_at == attempt_updated_at]


def _promise(decision: End | AnnounceAgain, decisions: Sequence[StaleRecord], sidecars: Sidecars) -> str:
    """What is about to be done; in the conditional where nobody will."""
    decided = [one for one in decisions if one.is_shadow and one.outcome is decision.outcome]
    if sidecars.is_shadow and decided:
        would_be = "requested again" if isinstance(decision, AnnounceAgain) else decision.becomes
        return f"decided in shadow already, at {clock(decided[-1].decided_at)}: it would have been {would_be}"
    is_conditional = sidecars.is_shadow or sidecars.unwatched is not None
    if isinstance(decision, AnnounceAgain):
        return f"{'would be' if is_conditional else 'about to be'} requested again"
    if is_conditional:
        return f"{'a' if sidecars.unwatched else 'the next'} scan would make it {decision.becomes}"
    if sidecars.brake_mode.is_tripped:
        return f"once the brake lets it, a scan makes it {decision.becomes}"
    return f"the next scan makes it {decision.becomes}"


def _why_it_waits(
    explanation: str, until: datetime | None, case: StaleCase | None, records: Records, unwatched: str | None
) -> str:
    """The decision's own words, where no more is known than the monitor has to know."""
    if case is None:
        return _why_not_scheduled(explanation, records)
    row, queue, status = case.worker.row, case.worker.queue, case.execution.status
    if status is ExecutionStatus.RUNNING and row is not None and case.silence is None:
        age = row.heartbeat_age_seconds
        is_process_known = case.worker.process is not None
        if age is None:
            known = f"it runs; whether worker {row.id} is alive is unknown: it has sent no heartbeat"
            return f"{known}; {explanation}" if is_process_known else known
        known = f"it runs; worker {row.id} reported {max(age, 0.0):.0f} s ago"
        return f"{known}; {explanation if is_process_known else 'nothing to do'}"
    is_before_horizon = status is ExecutionStatus.SCHEDULED and case.age_seconds < case.horizon_seconds
    if not is_before_horizon or queue is None or queue.ready or not (is_empty(queue) or is_unattended(queue)):
        return explanation
    if any(letter.attempt_updated_at == case.execution.updated for letter in records.letters):
        where = "its letter has come and is told of above"
    else:
        # The counts are some seconds old: a live worker may have it, and not have written so.
        taken = "" if is_unattended(queue) else "its worker has just taken it, "
        where = f"{taken}its letter is on its way, waits in the intake queue, or was lost"
    looks = f"; the monitor looks at {clock(until)}" if until and not unwatched else ""
    return f"it has left the worker's queue: {where}{looks}"


def _why_not_scheduled(explanation: str, records: Records) -> str:
    """A request that the scheduler rejected since the row last changed is not with it any more."""
    if not explanation.startswith(WITH_THE_SCHEDULER) or records.execution is None:
        return explanation
    rejected = [
        letter.repeated_at or letter.received_at
        for letter in records.letters
        if letter.reason == "rejected" and letter.worker_id is None
    ]
    last = max(rejected, default=None)
    if last is None or last < records.execution.updated:
        return explanation
    return explanation.replace(WITH_THE_SCHEDULER, f"the scheduler rejected its request at {clock(last)}")


def _is_broker_away(case: StaleCase | None) -> bool:
    return (
        case is not None
        and case.execution.status is ExecutionStatus.SCHEDULED
        and case.execution.worker_id is not None
        and not case.worker.is_queue_known
    )


def _is_restart_hidden(case: StaleCase | None) -> bool:
    return (
        case is not None
        and case.execution.status is ExecutionStatus.RUNNING
        and case.execution.worker_id is not None
        and case.silence is None
        and case.worker.process is None
    )


def _seen(evidence: Mapping[str, object], case: StaleCase | None) -> dict[str, object]:
    """Without what the one who asks has assumed, or looked at himself: only a sidecar's looks count."""
    seen = {name: value for name, value in evidence.items() if name not in _ASSUMED}
    looks = seen.pop("looks", None)
    if isinstance(looks, Mapping) and case is not None:
        kept = {name: at for name, at in looks.items() if at != case.now.isoformat()}
        seen |= {"looks": kept} if kept else {}
    return seen
