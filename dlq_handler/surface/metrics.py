"""Keep the metrics: hears what the services tell, and answers a scrape. `series.py` lists every name, help and label.

Promises: what cannot be told is NaN from the first scrape on. Never: asks a server anything while it is being scraped.
"""

from collections.abc import Callable, Mapping, Sequence

from prometheus_client import generate_latest

from dlq_handler.domain.availability import Availability
from dlq_handler.domain.brake import BrakeMode
from dlq_handler.domain.gate import GateCause
from dlq_handler.domain.judge_canary import CanaryState, WorkerCanary, counted
from dlq_handler.domain.reconcile import Finding
from dlq_handler.domain.stale_verdict import StaleOutcome
from dlq_handler.domain.verdict import Outcome
from dlq_handler.services.observer import BrakeSeen, Observer
from dlq_handler.surface.series import OTHER_REASON, REASONS, Series

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BRAKE_STATES = {BrakeMode.HOLDING: 1, BrakeMode.LIMITED: 2}


class Metrics(Series, Observer):
    def __init__(self) -> None:
        super().__init__()
        self.intake_seen(None, None)
        self.oldest_letter_seen(None)
        self.outbox_seen(None, None, None)
        self.leaked_slots_seen(None)
        self.brake_built(lambda: None)
        self.gate_built(lambda _: None)
        self.workers_seen(None)
        self.unattended_queues_seen(None)
        self.canaries_seen(None)

    def letter_judged(self, reason: str, outcome: Outcome, latency_seconds: float | None) -> None:
        self._letters.labels(reason if reason in REASONS else OTHER_REASON, outcome.value).inc()
        if latency_seconds is not None:
            self._verdict_latency.observe(max(0.0, latency_seconds))

    def letter_rejudged(self, outcome: Outcome) -> None:
        self._rejudged.labels(outcome.value).inc()

    def batch_committed(self, letters: int, held_over: int, seconds: float) -> None:
        self._batch_letters.observe(letters)
        self._batch_seconds.observe(seconds)
        self._held_over.inc(held_over)

    def letter_repeated(self, count: int) -> None:
        self._repeats.inc(count)

    def notices_settled(self, outcome: str, count: int) -> None:
        self._notices.labels(outcome).inc(count)

    def notices_announced(self, took_seconds: Sequence[float]) -> None:
        for seconds in took_seconds:
            self._announce_latency.observe(max(0.0, seconds))

    def canaries_arrived(self, count: int) -> None:
        self._canaries_arrived.inc(count)

    def reconnected(self, link: str) -> None:
        self._reconnects.labels(link).inc()

    def loop_lagged(self, seconds: float) -> None:
        self._loop_lag.observe(seconds)

    def intake_reopened(self) -> None:
        self._reopened.inc()

    def intake_seen(self, messages: int | None, consumers: int | None) -> None:
        self._dlq_messages.set(_or_nan(messages))
        self._dlq_consumers.set(_or_nan(consumers))

    def oldest_letter_seen(self, age_seconds: float | None) -> None:
        self._dlq_oldest.set(_or_nan(age_seconds))

    def leaked_slots_seen(self, count: int | None) -> None:
        self._slots_leaked.set(_or_nan(count))

    def outbox_seen(
        self, pending: int | None, oldest_age_seconds: float | None, unroutable: int | None
    ) -> None:
        self._outbox_pending.set(_or_nan(pending))
        self._outbox_oldest.set(_or_nan(oldest_age_seconds))
        self._outbox_unroutable.set(_or_nan(unroutable))

    def brake_built(self, seen: Callable[[], BrakeSeen | None]) -> None:
        def state() -> float:
            brake = seen()
            return _or_nan(None if brake is None else _BRAKE_STATES.get(brake.mode, 0))

        def ended() -> float:
            brake = seen()
            return _or_nan(None if brake is None else brake.ended_last_minute)

        self._brake_state.set_function(state)
        self._verdicts_last_minute.set_function(ended)

    def brake_tripped(self) -> None:
        self._brake_trips.inc()

    def gate_built(self, is_closed: Callable[[GateCause], bool | None]) -> None:
        def closed_by(cause: GateCause) -> Callable[[], float]:
            return lambda: _or_nan(is_closed(cause))

        for cause in GateCause:
            self._gate_closed.labels(cause.value).set_function(closed_by(cause))

    def workers_seen(self, counts: Mapping[Availability, int] | None) -> None:
        for availability in Availability:
            count = None if counts is None else counts.get(availability, 0)
            self._workers.labels(availability.value).set(_or_nan(count))

    def unattended_queues_seen(self, count: int | None) -> None:
        self._unattended_queues.set(_or_nan(count))

    def leadership_built(self, is_leader: Callable[[], bool]) -> None:
        self._leader.set_function(is_leader)

    def stale_found(self, original_status: str, outcome: StaleOutcome) -> None:
        self._stale.labels(original_status, outcome.value).inc()

    def sweep_finished(self, seconds: float) -> None:
        self._sweep_seconds.observe(seconds)

    def reconciled(self, finding: Finding, count: int) -> None:
        self._reconciled.labels(finding.value).inc(count)

    def canaries_seen(self, canaries: Sequence[WorkerCanary] | None) -> None:
        counts = None if canaries is None else counted(canaries)
        for state in CanaryState:
            self._canary_workers.labels(state.value).set(_or_nan(None if counts is None else counts[state]))
        ages = [one.seen_seconds_ago for one in canaries or () if one.seen_seconds_ago is not None]
        self._canary_age.set(_or_nan(max(ages, default=None)))
        took = [one.took_seconds for one in canaries or () if one.took_seconds is not None]
        self._canary_seconds.set(_or_nan(max(took, default=None)))

    def notified(self, *, is_delivered: bool) -> None:
        self._notifications.labels("delivered" if is_delivered else "failed").inc()

    def exposition(self) -> bytes:
        return generate_latest(self.registry)


def _or_nan(value: float | None) -> float:
    """NaN says "cannot tell"; the last known value would say "all is well" all through an outage."""
    return float("nan") if value is None else value
