"""Every metric of the sidecar: name, help, labels. Names are public API.

Promises: all label combinations exist at 0 from the first scrape, because a counter born at 7 is invisible to
`increase()`; no label holds an id. Gauges of shared state are exported by every replica: aggregate with max.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from dlq_handler import __version__
from dlq_handler.domain.availability import Availability
from dlq_handler.domain.dead_letter import DEATH_REASONS, UNKNOWN_REASON
from dlq_handler.domain.gate import GateCause
from dlq_handler.domain.judge_canary import CanaryState
from dlq_handler.domain.reconcile import Finding
from dlq_handler.domain.stale_verdict import StaleOutcome
from dlq_handler.domain.verdict import Outcome

# One series more for every counter and label, and nobody asks when a counter was born.
disable_created_metrics()  # type: ignore[no-untyped-call]  # ships without its annotation

# Any sender can forge a reason; the label must not grow with what senders invent.
OTHER_REASON = "other"
REASONS = (*DEATH_REASONS, UNKNOWN_REASON, OTHER_REASON)
NOTICE_OUTCOMES = ("confirmed", "unroutable", "refused", "unknown", "withheld")
NOTIFICATION_RESULTS = ("delivered", "failed")
LINKS = ("database", "intake", "publisher", "topology")

STALE_ENDS = {
    "requested": StaleOutcome.FAILED,
    "scheduling": StaleOutcome.FAILED,
    "scheduled": StaleOutcome.FAILED,
    "running": StaleOutcome.ABANDONED,
    "canceling": StaleOutcome.CANCELLED,
}

_LATENCY_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_BATCH_BUCKETS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2000)

Labelled = TypeVar("Labelled", Counter, Gauge)


class Series:
    """One registry per process part, so that tests and replicas in one process do not share counters."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._list_letters()
        self._list_notices()
        self._list_backstop()
        self._list_canaries()
        self._list_process()

    def _list_letters(self) -> None:
        self._letters = self._counter(
            "dead_letters", "Dead letters put on record.", reason=REASONS, outcome=Outcome
        )
        self._repeats = self._counter(
            "dead_letter_repeats", "Deliveries of letters that were on record already."
        )
        self._rejudged = self._counter("dead_letters_rejudged", "Kept letters judged again.", outcome=Outcome)
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
        self._reopened = self._counter(
            "intake_opened", "Times the consumer of the intake queue was registered."
        )
        self._dlq_messages = self._gauge(
            "dlq_messages",
            "Messages in the intake queue, ready or unacknowledged (NaN: unknown). Without the management API, "
            "messages that other replicas hold are not counted.",
        )
        self._dlq_consumers = self._gauge(
            "dlq_consumers", "Consumers on the intake queue (NaN: cannot tell)."
        )
        self._dlq_oldest = self._gauge(
            "dlq_oldest_age_seconds",
            "Since the oldest letter that this replica holds died; 0 when none waits (NaN: cannot tell).",
        )
        self.bound_workers = self._gauge(
            "bound_workers", "Workers whose routing key is bound to the intake queue."
        )

    def _list_notices(self) -> None:
        self._notices = self._counter(
            "notices", "Answers of the broker to published notices.", outcome=NOTICE_OUTCOMES
        )
        self._announce_latency = self._histogram(
            "announce_latency_seconds",
            "From the transaction of a verdict to the mark that the broker has its notice, by the database's clock: "
            "whatever kept it waiting, and whoever held it.",
            _LATENCY_BUCKETS,
        )
        self._outbox_pending = self._gauge("outbox_pending", "Notices not yet confirmed (NaN: cannot tell).")
        self._outbox_oldest = self._gauge(
            "outbox_oldest_age_seconds", "Age of the oldest unconfirmed notice (NaN: cannot tell)."
        )
        self._outbox_unroutable = self._gauge(
            "outbox_unroutable", "Unconfirmed notices that no queue took at the last try (NaN: cannot tell)."
        )

    def _list_backstop(self) -> None:
        self._brake_state = self._gauge(
            "brake_state",
            "The brake: 0 normal, 1 holding (nothing is ended), 2 limited rate (NaN: cannot tell, nobody has looked "
            "within ten seconds).",
        )
        self._brake_trips = self._counter("brake_trips", "Times the brake tripped, seen by this replica.")
        self._verdicts_last_minute = self._gauge(
            "verdicts_last_minute",
            "Executions ended in the last 60 seconds by all replicas together, game days left out (NaN: cannot tell).",
        )
        self._gate_closed = self._gauge(
            "gate_closed",
            "1 while this cause closes the safety gate. schema, recovery and unknown_executions stop all decisions; "
            "clock_jump and young_link stop those that need heartbeats (NaN: unknown, the database was not checked "
            "within ten seconds).",
            cause=GateCause,
        )
        self.shadow = self._gauge(
            "shadow",
            "1 in shadow mode: the counts of letters are what would have been done, and nothing was.",
        )
        self._workers = self._gauge(
            "workers",
            "Registered workers that sent a heartbeat within a day, by its age (NaN: cannot tell). Who is silent for "
            "longer is history, as hosts never delete the rows, and counts only where nobody else is left.",
            availability=Availability,
        )
        self._unattended_queues = self._gauge(
            "worker_queues_unattended",
            "Worker queues with messages and without a consumer (NaN: cannot tell).",
        )
        self._slots_leaked = self._gauge(
            "slots_leaked",
            "Concurrency slots still held by executions that ended long ago (NaN: cannot tell).",
        )
        self._leader = self._gauge(
            "leader",
            "1 on the replica that holds the lease. Only that replica runs the timeout monitor (if monitor.enabled) "
            "and sends canaries.",
        )
        self._stale = Counter(
            "stale_executions",
            "Executions that the monitor ended, or would have ended in shadow mode; update_failed: refused by the "
            "database.",
            ("original_status", "outcome"),
            namespace="dlq_handler",
            registry=self.registry,
        )
        # Not all combinations: each status has one end, and one failure.
        for status, end in STALE_ENDS.items():
            for outcome in (end, StaleOutcome.UPDATE_FAILED):
                self._stale.labels(status, outcome.value)
        self._sweep_seconds = self._histogram(
            "sweep_seconds", "Duration of one sweep for stale executions.", _LATENCY_BUCKETS
        )
        self._reconciled = self._counter(
            "reconciled",
            "Executions that somebody had lost sight of, and that were announced, or noticed; also those that would "
            "have been announced in shadow mode.",
            finding=Finding,
        )

    def _list_canaries(self) -> None:
        self._canary_workers = self._gauge(
            "canary_workers",
            "Workers by what the canary says of their binding (NaN: it could not even be asked).",
            state=CanaryState,
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
        self._canaries_arrived = self._counter(
            "canaries_arrived", "Canaries taken from the intake queue; they are in no count of letters."
        )

    def _list_process(self) -> None:
        self.ready = self._gauge("ready", "1 while /readyz answers 200.")
        self._reconnects = self._counter(
            "reconnects", "Links that were there before and were opened again.", link=LINKS
        )
        self._notifications = self._counter(
            "notifications", "Messages to the webhook, by what became of them.", result=NOTIFICATION_RESULTS
        )
        self._loop_lag = self._histogram(
            "loop_lag_seconds", "How much too late the event loop does what is due.", _LAG_BUCKETS
        )
        build = self._gauge("build_info", "Always 1; the label tells the version.", version=[__version__])
        build.labels(__version__).set(1)

    def _counter(self, name: str, text: str, **labels: Iterable[str]) -> Counter:
        counter = Counter(name, text, tuple(labels), namespace="dlq_handler", registry=self.registry)
        return _with_all(counter, labels.values())

    def _gauge(self, name: str, text: str, **labels: Iterable[str]) -> Gauge:
        gauge = Gauge(name, text, tuple(labels), namespace="dlq_handler", registry=self.registry)
        return _with_all(gauge, labels.values())

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, text, namespace="dlq_handler", registry=self.registry, buckets=buckets)


def _with_all(metric: Labelled, values: Iterable[Iterable[str]]) -> Labelled:
    if values := list(values):
        for combination in product(*values):
            metric.labels(*map(str, combination))
    return metric
