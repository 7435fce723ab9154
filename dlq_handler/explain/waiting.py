"""Explain why an execution that has not ended is still waiting. Pure.

Promises nothing that no replica is there to keep: each answer says whether a replica scans, and what holds it back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from dlq_handler.explain.records import Records, Waiting, clock
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.worker import WorkerQueueNames, is_on_time
from dlq_handler.safety.brake import BrakeMode, BrakeView, in_words, mode_of
from dlq_handler.safety.options import BrakeOptions
from dlq_handler.timeouts.case import StaleCase
from dlq_handler.timeouts.decide_unscheduled import UnscheduledDecision
from dlq_handler.timeouts.decision import End, NotStale, RepublishRequest, StaleOutcome, StaleRecord, Wait
from dlq_handler.workers.availability import Availability, began_at
from dlq_handler.workers.service_observation import ServiceObservations, has_reported_twice
from dlq_handler.workers.worker_observation import is_empty, is_unattended

EXECUTOR_DOES_NOT_CONSUME = (
    "the queue of scheduling requests has no consumer: restart Attune's executor, "
    "because it does not reconnect to RabbitMQ"
)
GATE_IS_UNKNOWN = "the state of the safety gate is unknown here: /readyz of a running replica shows it"
RESTART_IS_HIDDEN = (
    "a restart of the worker under its name is not detected: dlq_handler.worker.reconnects is true; set it to false "
    "if the worker never reconnects, as Attune's do not"
)
BROKER_IS_UNAVAILABLE = (
    "no scheduled execution is ended while the broker does not answer about its worker's queue"
)

# A command assumes these, because it has not watched for them: they are no evidence.
_ASSUMED = {"watched_seconds", "scheduler_queue_quiet_seconds", "publishes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """The replicas that scan for stale executions: does one lead, and may it end executions?"""

    is_led: bool
    lease_ended_at: datetime | None = None
    """When the last lease ended, if no replica leads; None: it was released, or there was none."""
    is_monitored: bool = True
    is_shadow: bool = False
    brake: BrakeView
    brake_policy: BrakeOptions

    @property
    def unwatched(self) -> str | None:
        if not self.is_monitored:
            return "dlq_handler.monitor.enabled is false: no replica scans for it"
        if self.is_led:
            return None
        lease = (
            f"the lease ended at {clock(self.lease_ended_at)}" if self.lease_ended_at else "no lease is held"
        )
        return f"no replica leads ({lease}), so no replica scans for it; is one running?"

    @property
    def brake_mode(self) -> BrakeMode:
        return mode_of(self.brake, self.brake_policy)

    @property
    def notes(self) -> list[str]:
        notes = ["shadow mode: no execution is changed, and no event is published"] if self.is_shadow else []
        if self.brake_mode.is_tripped:
            notes.append(f"brake: {in_words(self.brake, self.brake_policy)}")
        return notes


def waiting_of(
    decision: UnscheduledDecision, *, records: Records, replicas: Replicas, case: StaleCase | None = None
) -> Waiting:
    """`decision`: that of the timeout monitor now. `case`: the facts that it is based on, if it was dispatched."""
    unwatched, notes = replicas.unwatched, replicas.notes
    decisions = _of_this_attempt(records)
    refused = [one for one in decisions if one.outcome is StaleOutcome.UPDATE_FAILED]
    notes += [f"the database refused to let it end: {one.error}" for one in refused]
    match decision:
        case Wait(explanation=explanation, until=until, evidence=evidence):
            is_unknown = _is_broker_unavailable(case)
            if _is_restart_hidden(case):
                notes = [*notes, RESTART_IS_HIDDEN]
            if case is None and (rejected_at := _rejected_at(records)) is not None:
                notes = [*notes, f"the scheduler rejected a request for it at {clock(rejected_at)}"]
            return Waiting(
                explanation=_why_it_waits(explanation, until, case, records, unwatched),
                unwatched=unwatched,
                until=until,
                # The deadline is unknown too: the queue may have a longer TTL than the settings.
                is_earliest=is_unknown or replicas.brake_mode is BrakeMode.HOLDING,
                notes=[*notes, BROKER_IS_UNAVAILABLE] if is_unknown else notes,
                evidence=_seen(evidence, case),
            )
        case NotStale(explanation=explanation):
            return Waiting(explanation=f"dlq-handler does not end it: {explanation}", notes=notes)
        case RepublishRequest(explanation=explanation, evidence=evidence):
            promise = _promise(decision, decisions, replicas)
            return Waiting(
                explanation=f"{promise}: {explanation}",
                unwatched=unwatched,
                notes=notes,
                evidence=_seen(evidence, case),
            )
        case End(explanation=explanation, evidence=evidence):
            times = [one.next_attempt_at for one in refused if one.next_attempt_at is not None]
            if replicas.brake_mode is BrakeMode.HOLDING and replicas.brake.state.hold_until is not None:
                times.append(replicas.brake.state.hold_until)
            return Waiting(
                explanation=f"{_promise(decision, decisions, replicas)}: {explanation}",
                unwatched=unwatched,
                until=max(times, default=None),
                is_earliest=replicas.brake_mode is BrakeMode.HOLDING,
                notes=notes if unwatched else [*notes, GATE_IS_UNKNOWN],
                evidence=_seen(evidence, case),
            )
        case _:
            assert_never(decision)


def _of_this_attempt(records: Records) -> list[StaleRecord]:
    attempt_updated_at = records.execution.updated if records.execution else None
    return [one for one in records.decisions if one.attempt_updated_at == attempt_updated_at]


def _promise(decision: End | RepublishRequest, decisions: Sequence[StaleRecord], replicas: Replicas) -> str:
    """What the next scan does; in the conditional if no replica will do it."""
    decided = [one for one in decisions if one.is_shadow and one.outcome is decision.outcome]
    if replicas.is_shadow and decided:
        would_be = "requested again" if isinstance(decision, RepublishRequest) else decision.becomes
        return f"decided in shadow already, at {clock(decided[-1].decided_at)}: it would have been {would_be}"
    is_conditional = replicas.is_shadow or replicas.unwatched is not None
    if isinstance(decision, RepublishRequest):
        return f"{'would be' if is_conditional else 'about to be'} requested again"
    if is_conditional:
        return f"{'a' if replicas.unwatched else 'the next'} scan would make it {decision.becomes}"
    if replicas.brake_mode.is_tripped:
        return f"once the brake lets it, a scan makes it {decision.becomes}"
    return f"the next scan makes it {decision.becomes}"


def _why_it_waits(
    explanation: str, until: datetime | None, case: StaleCase | None, records: Records, unwatched: str | None
) -> str:
    """The explanation of the decision, unless more is known than the timeout monitor needs."""
    if case is None:
        return explanation
    row, queue, status = case.worker.row, case.worker.queue, case.execution.status
    if status is ExecutionStatus.RUNNING and row is not None and case.why_unavailable is None:
        age = row.heartbeat_age_seconds
        is_process_known = case.worker.process is not None
        if age is None:
            known = f"it runs; whether worker {row.id} is alive is unknown: it has sent no heartbeat"
            return f"{known}; {explanation}" if is_process_known else known
        known = f"it runs; worker {row.id} reported {max(age, 0.0):.0f} s ago"
        return f"{known}; {explanation if is_process_known else 'nothing to do'}"
    is_before_deadline = status is ExecutionStatus.SCHEDULED and case.age_seconds < case.deadline_seconds
    if (
        not is_before_deadline
        or queue is None
        or queue.ready
        or not (is_empty(queue) or is_unattended(queue))
    ):
        return explanation
    if any(letter.attempt_updated_at == case.execution.updated for letter in records.letters):
        where = "its dead letter was received, see above"
    else:
        # The counts are some seconds old: an available worker may have received it and not have recorded that yet.
        taken = "" if is_unattended(queue) else "its worker has just received it, "
        where = f"{taken}its dead letter is on the route, waits in the intake queue, or was lost"
    decides = f"; the timeout monitor decides at {clock(until)}" if until and not unwatched else ""
    return f"it has left the worker's queue: {where}{decides}"


def _rejected_at(records: Records) -> datetime | None:
    """When the scheduler last rejected a request since the row has changed; None: not that it is recorded."""
    rejected = [
        letter.repeated_at or letter.received_at
        for letter in records.letters
        if letter.reason == "rejected" and letter.worker_id is None
    ]
    last = max(rejected, default=None)
    return None if last is None or records.execution is None or last < records.execution.updated else last


def _is_broker_unavailable(case: StaleCase | None) -> bool:
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
        and case.why_unavailable is None
        and case.worker.process is None
    )


def _seen(evidence: Mapping[str, object], case: StaleCase | None) -> dict[str, object]:
    """Without what a command has assumed or observed itself: only observations of a replica are evidence."""
    seen = {name: value for name, value in evidence.items() if name not in _ASSUMED}
    checks = seen.pop("checks", None)
    if case is not None and case.worker.row is not None and case.why_unavailable is not None:
        since = began_at(case.worker.row, Availability.UNAVAILABLE, case.limits.availability)
        seen |= {"unavailable_since": since.isoformat()} if since else {}
    if isinstance(checks, Mapping) and case is not None:
        kept = {name: at for name, at in checks.items() if at != case.now.isoformat()}
        seen |= {"checks": kept} if kept else {}
    return seen


def worker_note(case: StaleCase, observations: ServiceObservations, names: WorkerQueueNames) -> str | None:
    """None: its worker consumes, sends no heartbeats, or has not sent two without a consumer."""
    worker = case.worker.row
    if case.execution.status is not ExecutionStatus.SCHEDULED or worker is None:
        return None
    if not case.worker.is_queue_known or not is_unattended(case.worker.queue):
        return None
    are_current = observations.are_current(case.now)
    observation = observations.by_queue.get(names.queue(worker.id)) if are_current else None
    is_reporting = is_on_time(worker, policy=case.limits.availability)
    if (
        observation is None
        or not is_reporting
        or not has_reported_twice(observation.first_heartbeat, worker.last_heartbeat)
    ):
        return None
    since = clock(observation.unconsumed_since)
    return (
        f"worker {worker.id} reports without consuming its queue since {since}: restart it, "
        "because it does not reconnect to RabbitMQ"
    )
