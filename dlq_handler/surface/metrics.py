"""Every metric of the sidecar: name, help, labels. Names are public API.

Promises: all label combinations exist at 0 from the first scrape, because a counter born at 7 is invisible to
`increase()`; no label holds an id. Never: asks a server anything while it is being scraped.
"""

from collections.abc import Collection, Mapping, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from dlq_handler import __version__
from dlq_handler.domain.availability import Availability
from dlq_handler.domain.brake import BrakeMode
from dlq_handler.domain.dead_letter import DEATH_REASONS, UNKNOWN_REASON
from dlq_handler.domain.gate import GateCause
from dlq_handler.domain.judge_canary import CanaryState, WorkerCanary, counted
from dlq_handler.domain.reconcile import Finding
from dlq_handler.domain.stale_verdict import StaleOutcome
from dlq_handler.domain.verdict import Outcome
from dlq_handler.services.observer import Observer

# One series more for every counter and label, and nobody asks when a counter was born.
disable_created_metrics()  # type: ignore[no-untyped-call]  # ships without its annotation

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Any sender can forge a reason; the label must not grow with what senders invent.
OTHER_REASON = "other"
REASONS = (*DEATH_REASONS, UNKNOWN_REASON, OTHER_REASON)
NOTICE_OUTCOMES = ("confirmed", "unroutable", "refused", "unknown", "withheld")

_BRAKE_STATES = {BrakeMode.HOLDING: 1, BrakeMode.LIMITED: 2}

STALE_ENDS = {
    "requested": StaleOutcome.FAILED,
    "scheduling": StaleOutcome.FAILED,
    "scheduled": StaleOutcome.FAILED,
    "running": StaleOutcome.ABANDONED,
    "canceling": StaleOutcome.CANCELLED,
}

_LATENCY_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
_BATCH_BUCKETS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2000)


class Metrics(Observer):
    """One registry per process part, so that tests and replicas in one process do not share counters."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._letters = self._counter("dead_letters", "Dead letters put on record.", ("reason", "outcome"))
        for reason in REASONS:
            for outcome in Outcome:
                self._letters.labels(reason, outcome.value)
        self._repeats = self._counter(
            "dead_letter_repeats", "Deliveries of letters that were on record already."
        )
        self._rejudged = self._counter("dead_letters_rejudged", "Kept letters judged again.", ("outcome",))
        for outcome in Outcome:
            self._rejudged.labels(outcome.value)
        self._verdict_latency = self._histogram(
            "verdict_latency_seconds",
            "From a letter's death (the broker tells whole seconds) to the commit of its verdict.",
            _LATENCY_BUCKETS,
        )
        self._batch_letters = self._histogram("batch_letters", "Letters per transaction.", _BATCH_BUCKETS)
        self._batch_seconds = self._histogram(
            "batch_seconds", "Duration of a batch, from judging to commit.", _LATENCY_BUCKETS
        )
        self._held_over = self._counter(
            "dead_letters_held_over", "Letters put off: their row was locked, or the brake had no room."
        )
        self._notices = self._counter("notices", "Answers of the broker to published notices.", ("outcome",))
        for answer in NOTICE_OUTCOMES:
            self._notices.labels(answer)
        self._announce_latency = self._histogram(
            "announce_latency_seconds",
            "From the commit of a verdict to the broker's answer.",
            _LATENCY_BUCKETS,
        )
        self._reopened = self._counter(
            "intake_opened", "Times the consumer of the intake queue was registered."
        )
        self._dlq_messages = self._gauge(
            "dlq_messages", "Messages ready in the intake queue (NaN: cannot tell)."
        )
        self._dlq_consumers = self._gauge(
            "dlq_consumers", "Consumers on the intake queue (NaN: cannot tell)."
        )
        self._outbox_pending = self._gauge("outbox_pending", "Notices not yet confirmed (NaN: cannot tell).")
        self._outbox_oldest = self._gauge(
            "outbox_oldest_age_seconds", "Age of the oldest unconfirmed notice (NaN: cannot tell)."
        )
        self.bound_workers = self._gauge(
            "bound_workers", "Workers whose routing key is bound to the intake queue."
        )
        self._brake_state = self._gauge(
            "brake_state",
            "The brake: 0 normal, 1 holding (nothing is ended), 2 limited rate (NaN: cannot tell).",
        )
        self._brake_trips = self._counter("brake_trips", "Times the brake tripped, seen by this replica.")
        self._verdicts_last_minute = self._gauge(
            "verdicts_last_minute",
            "Executions ended in the last 60 seconds by all replicas together (NaN: cannot tell).",
        )
        self._gate_closed = self._gauge(
            "gate_closed",
            "1 while our own view is sick: recovery and unknown_executions stop all verdicts, the others those that "
            "rest on heartbeats.",
            ("cause",),
        )
        for cause in GateCause:
            self._gate_closed.labels(cause.value)
        self.shadow = self._gauge(
            "shadow",
            "1 in shadow mode: the counts of letters are what would have been done, and nothing was.",
        )
        self._workers = self._gauge(
            "workers",
            "Registered workers, by the age of their heartbeat (NaN: cannot tell).",
            ("availability",),
        )
        self._unattended_queues = self._gauge(
            "worker_queues_unattended",
            "Worker queues with messages and without a consumer (NaN: cannot tell).",
        )
        self.workers_seen(None)
        self.unattended_queues_seen(None)
        self.ready = self._gauge("ready", "1 while /readyz answers 200.")
        for gauge in (self._dlq_messages, self._dlq_consumers, self._outbox_pending, self._outbox_oldest):
            gauge.set(float("nan"))
        for gauge in (self._brake_state, self._verdicts_last_minute):
            gauge.set(float("nan"))
        self._leader = self._gauge("leader", "1 on the replica that sweeps for stale executions.")
        self._stale = self._counter(
            "stale_executions",
            "Executions that the monitor ended, or would have ended in shadow mode; update_failed: refused by the "
            "database.",
            ("original_status", "outcome"),
        )
        for status, end in STALE_ENDS.items():
            for stale_outcome in (end, StaleOutcome.UPDATE_FAILED):
                self._stale.labels(status, stale_outcome.value)
        self._sweep_seconds = self._histogram(
            "sweep_seconds", "Duration of one sweep for stale executions.", _LATENCY_BUCKETS
        )
        self._reconciled = self._counter(
            "reconciled",
            "Executions that somebody had lost sight of, and that were announced, or noticed; also those that would "
            "have been announced in shadow mode.",
            ("finding",),
        )
        for finding in Finding:
            self._reconciled.labels(finding.value)
        self._canary_workers = self._gauge(
            "canary_workers",
            "Workers by what the canary says of their binding (NaN: it could not even be asked).",
            ("state",),
        )
        self._canary_age = self._gauge(
            "canary_age_seconds",
            "Since a canary last arrived, for the worker where that is longest ago (NaN: cannot tell, or never).",
        )
        self._canary_seconds = self._gauge(
            "canary_seconds",
            "How long the last canary took from sending to arrival, its TTL included, for the slowest worker (NaN: "
            "cannot tell, or never).",
        )
        self.canaries_seen(None)
        build = self._gauge("build_info", "Always 1; the label tells the version.", ("version",))
        build.labels(__version__).set(1)

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

    def notices_settled(self, outcome: str, announce_seconds: Sequence[float]) -> None:
        self._notices.labels(outcome).inc(len(announce_seconds))
        if outcome == "confirmed":
            for seconds in announce_seconds:
                self._announce_latency.observe(max(0.0, seconds))

    def intake_reopened(self) -> None:
        self._reopened.inc()

    def intake_seen(self, ready: int | None, consumers: int | None) -> None:
        self._dlq_messages.set(_or_nan(ready))
        self._dlq_consumers.set(_or_nan(consumers))

    def outbox_seen(self, pending: int | None, oldest_age_seconds: float | None) -> None:
        self._outbox_pending.set(_or_nan(pending))
        self._outbox_oldest.set(_or_nan(oldest_age_seconds))

    def brake_seen(self, mode: BrakeMode | None, ended_last_minute: int | None) -> None:
        self._brake_state.set(_or_nan(None if mode is None else _BRAKE_STATES.get(mode, 0)))
        self._verdicts_last_minute.set(_or_nan(ended_last_minute))

    def brake_tripped(self) -> None:
        self._brake_trips.inc()

    def gate_seen(self, causes: Collection[GateCause]) -> None:
        for cause in GateCause:
            self._gate_closed.labels(cause.value).set(cause in causes)

    def workers_seen(self, counts: Mapping[Availability, int] | None) -> None:
        for availability in Availability:
            count = None if counts is None else counts.get(availability, 0)
            self._workers.labels(availability.value).set(_or_nan(count))

    def unattended_queues_seen(self, count: int | None) -> None:
        self._unattended_queues.set(_or_nan(count))

    def leadership_changed(self, is_leader: bool) -> None:
        self._leader.set(is_leader)

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

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(name, text, labels, namespace="dlq_handler", registry=self.registry)

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(name, text, labels, namespace="dlq_handler", registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, text, namespace="dlq_handler", registry=self.registry, buckets=buckets)


def _or_nan(value: float | None) -> float:
    """NaN says "cannot tell"; the last known value would say "all is well" all through an outage."""
    return float("nan") if value is None else value
