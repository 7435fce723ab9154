"""Every metric of a replica: name, help and labels.

Services use metrics as they are, by the exported name. A method exists where one fact changes several metrics, or where
labels are counted together.

Promises: all label combinations exist at 0 from the first scrape, because `increase()` cannot see a counter that starts
at 7. A value that is unknown is NaN from the first scrape on. No label holds an id. Names are public API. Gauges of
shared state are exported by every replica: aggregate with max.
Never: imports a room (the label values are passed to `Metrics`), or asks a server during a scrape.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

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
from dlq_handler.gauges import OptionalGauge, or_nan, read_from, set_all, with_all
from dlq_handler.metric_values import OTHER_REASON, FlowFigures, LabelValues

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# The time of creation would add one series for every counter and label, and has no use.
disable_created_metrics()  # type: ignore[no-untyped-call]  # ships without its annotation

PUBLISH_OUTCOMES = ("confirmed", "unroutable", "refused", "unknown", "withheld")
ARCHIVE_RECORDS = ("recorded", "counted")
LINKS = ("database", "intake", "publisher", "topology")

_LATENCY_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_BATCH_BUCKETS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2000)

Label = TypeVar("Label", bound=str)


class Metrics:
    """One registry per instance, so that tests and replicas in one process do not share counters."""

    def __init__(self, label_values: LabelValues) -> None:
        self._values = label_values
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._create_dead_letters()
        self._create_completion_events()
        self._create_safety()
        self._create_workers()
        self._create_timeouts()
        self._create_canaries()
        self._create_flows()
        self._create_process()
        self.read_brake_from(state=lambda: None, ended_last_minute=lambda: None)
        self.read_gate_from(dict[str, bool | None])
        self.set_workers(None)
        self.read_services_from(dict[str, int | None])
        self.set_canaries(None)
        self.read_flows_from(FlowFigures)

    def _create_dead_letters(self) -> None:
        self._letters = self._counter(
            "dead_letters",
            "Dead letters put on record.",
            reason=(*self._values.reasons, OTHER_REASON),
            outcome=self._values.outcomes,
        )
        self.dead_letter_repeats = self._counter(
            "dead_letter_repeats", "Deliveries of dead letters that were on record already."
        )
        self.dead_letters_reprocessed = self._counter(
            "dead_letters_reprocessed",
            "Dead letters on record that were reprocessed.",
            outcome=self._values.outcomes,
        )
        self._decision_latency = self._histogram(
            "decision_latency_seconds",
            "Time from dead-lettering (the broker reports whole seconds) to the commit of the decision.",
            _LATENCY_BUCKETS,
        )
        self._batch_letters = self._histogram(
            "batch_dead_letters", "Dead letters per transaction.", _BATCH_BUCKETS
        )
        self._batch_seconds = self._histogram(
            "batch_seconds", "Duration of a batch, from deciding to commit.", _LATENCY_BUCKETS
        )
        self._postponed = self._counter(
            "dead_letters_postponed",
            "Dead letters left to a later batch: the row was locked, or the brake had no room.",
        )
        self.intake_opened = self._counter(
            "intake_opened", "Times the consumer of the intake queue was registered."
        )
        self.dlq_messages = self._optional_gauge(
            "dlq_messages",
            "Messages in the intake queue, ready or unacknowledged (NaN: unknown). Without the management API, "
            "messages that other replicas hold are not counted.",
        )
        self.dlq_consumers = self._optional_gauge(
            "dlq_consumers", "Consumers on the intake queue (NaN: unknown)."
        )
        self.dlq_oldest_age_seconds = self._optional_gauge(
            "dlq_oldest_age_seconds",
            "Age of the oldest dead letter that this replica holds, since it was dead-lettered (NaN: unknown).",
        )
        self.bound_workers = self._gauge(
            "bound_workers", "Workers whose routing key is bound to the intake queue."
        )

    def _create_completion_events(self) -> None:
        self.completion_events = self._counter(
            "completion_events",
            "Answers of the broker to published completion events.",
            outcome=PUBLISH_OUTCOMES,
        )
        self._completion_event_latency = self._histogram(
            "completion_event_latency_seconds",
            "Time from the transaction of a decision to the record of the broker's confirm, by the database's clock, "
            "including all waits, on any replica.",
            _LATENCY_BUCKETS,
        )
        self._outbox_pending = self._optional_gauge(
            "outbox_pending", "Completion events not yet confirmed (NaN: unknown)."
        )
        self._outbox_oldest = self._optional_gauge(
            "outbox_oldest_age_seconds", "Age of the oldest unconfirmed completion event (NaN: unknown)."
        )
        self._outbox_unroutable = self._optional_gauge(
            "outbox_unroutable",
            "Unconfirmed completion events, unroutable at the last attempt (NaN: unknown).",
        )

    def _create_safety(self) -> None:
        self._brake_state = self._gauge(
            "brake_state",
            "The brake: 0 normal, 1 holding (nothing is ended), 2 limited rate (NaN: unknown, the database was "
            "not read within ten seconds).",
        )
        self.brake_trips = self._counter("brake_trips", "Times the brake tripped, seen by this replica.")
        self._decisions_last_minute = self._gauge(
            "decisions_last_minute",
            "Executions ended in the last 60 seconds by all replicas together (NaN: unknown).",
        )
        self._gate_closed = self._gauge(
            "gate_closed",
            "1 while this cause closes the safety gate. schema, recovery and unknown_executions stop all decisions; "
            "clock_jump and young_link stop those that need heartbeats (NaN: unknown, the database was not checked "
            "within ten seconds).",
            cause=self._values.gate_causes,
        )
        self.shadow = self._gauge(
            "shadow",
            "1 in shadow mode: dead letters are counted by what would have been done, and nothing is changed.",
        )

    def _create_workers(self) -> None:
        self._workers = self._gauge(
            "workers",
            "Registered workers that sent a heartbeat within a day, by its age (NaN: unknown). Older rows, which "
            "hosts never delete, count only if there are no others.",
            availability=self._values.availabilities,
        )
        self.worker_queues_unattended = self._optional_gauge(
            "worker_queues_unattended",
            "Worker queues with messages and without a consumer (NaN: unknown).",
        )
        self._services = self._gauge(
            "services_to_restart",
            "Services of Attune that run and get no work until they are restarted (NaN: unknown). "
            "executor_without_consumer: 1 while a queue of the executor has no consumer; worker_without_consumer: "
            "workers with two heartbeats and no consumer; worker_inactive: workers with two heartbeats that Attune has "
            "as inactive.",
            finding=self._values.service_findings,
        )
        self._system_queues_missing = self._optional_gauge(
            "system_queues_missing",
            "Queues that Attune's services declare at their start and that do not exist (NaN: unknown).",
        )

    def _create_timeouts(self) -> None:
        self.slots_leaked = self._optional_gauge(
            "slots_leaked",
            "Concurrency slots still held by executions that ended long ago (NaN: unknown).",
        )
        self.leader = self._gauge(
            "leader",
            "1 on the replica that holds the lease. Only that replica runs the timeout monitor (if monitor.enabled) "
            "and sends canaries.",
        )
        self.stale_executions = Counter(
            "stale_executions",
            "Executions that the monitor ended, or would have ended in shadow mode; update_failed: refused by the "
            "database.",
            ("original_status", "outcome"),
            namespace="dlq_handler",
            registry=self.registry,
        )
        for combination in self._values.stale_outcomes:
            self.stale_executions.labels(*combination)
        self.scan_seconds = self._histogram(
            "scan_seconds", "Duration of one scan for stale executions.", _LATENCY_BUCKETS
        )
        self.reconciled = self._counter(
            "reconciled",
            "Executions that Attune had lost track of, and that dlq-handler published again or recorded; also those "
            "that it would have published in shadow mode.",
            finding=self._values.reconcile_findings,
        )

    def _create_canaries(self) -> None:
        self._canary_workers = self._gauge(
            "canary_workers",
            "Workers by the state of their binding as the canary found it (NaN: unknown).",
            state=self._values.canary_states,
        )
        self._canary_age = self._optional_gauge(
            "canary_age_seconds",
            "Time since a canary last arrived, for the worker where that is longest ago (NaN: unknown, or never).",
        )
        self._canary_seconds = self._optional_gauge(
            "canary_seconds",
            "Time of the last canary from sending to arrival, including its TTL, for the slowest worker (NaN: "
            "unknown, or never).",
        )
        self.canaries_arrived = self._counter(
            "canaries_arrived",
            "Canaries received from the intake queue; they are not counted as dead letters.",
        )

    def _create_flows(self) -> None:
        self._flows = self._gauge(
            "flows",
            "Flows and retirements of worker queues, by status (NaN: unknown). Records of completed stops are deleted "
            "by retention.",
            status=self._values.flow_statuses,
        )
        self._flow_step_seconds = self._gauge(
            "flow_step_seconds",
            "For each step of a stop the longest time that a flow has been in it; 0: none is (NaN: unknown).",
            step=self._values.flow_steps,
        )
        self._queues_leaked = self._optional_gauge(
            "queues_leaked", "Queues of stopped flows that could not be deleted (NaN: unknown)."
        )
        self._archived = self._gauge(
            "flow_messages_archived",
            "Messages that the stops on record took from queues whose contents are archived: recorded, or beyond the "
            "limit only counted (NaN: unknown).",
            record=ARCHIVE_RECORDS,
        )
        self._queues_orphaned = self._optional_gauge(
            "queues_orphaned", "Queues of workers that are gone, which Attune never deletes (NaN: unknown)."
        )

    def _create_process(self) -> None:
        self.ready = self._gauge("ready", "1 while /readyz answers 200.")
        self._reconnects = self._counter(
            "reconnects", "Connections that were opened again after they were lost.", link=LINKS
        )
        self.loop_lag_seconds = self._histogram(
            "loop_lag_seconds", "Delay of the event loop beyond the due time.", _LAG_BUCKETS
        )
        build = self._gauge("build_info", "Always 1; the label is the version.", version=[__version__])
        build.labels(__version__).set(1)

    def count_dead_letter(self, reason: str, outcome: str, latency_seconds: float | None) -> None:
        """A dead letter was recorded. The latency is from dead-lettering to the commit, None if unknown."""
        known = reason if reason in self._values.reasons else OTHER_REASON
        self._letters.labels(known, outcome).inc()
        if latency_seconds is not None:
            self._decision_latency.observe(max(0.0, latency_seconds))

    def observe_batch(self, letters: int, postponed: int, seconds: float) -> None:
        """One transaction was committed."""
        self._batch_letters.observe(letters)
        self._batch_seconds.observe(seconds)
        self._postponed.inc(postponed)

    def observe_publish_latencies(self, latencies_seconds: Sequence[float]) -> None:
        """Outbox entries were marked confirmed. A latency is from the transaction that wrote the entry to the mark."""
        for seconds in latencies_seconds:
            self._completion_event_latency.observe(max(0.0, seconds))

    def count_reconnect(self, link: str) -> None:
        """A lost connection was opened again: "database", or the purpose of a broker connection."""
        self._reconnects.labels(link).inc()

    def set_outbox(
        self, pending: int | None, oldest_age_seconds: float | None, unroutable: int | None
    ) -> None:
        """Unconfirmed outbox entries; None: unknown."""
        self._outbox_pending.set(pending)
        self._outbox_oldest.set(oldest_age_seconds)
        self._outbox_unroutable.set(unroutable)

    # The answers of brake, gate, services and flows change as time passes, also while a query hangs that would report
    # the change. So each scrape reads them.

    def read_brake_from(
        self, *, state: Callable[[], int | None], ended_last_minute: Callable[[], int | None]
    ) -> None:
        """State of the brake (0 normal, 1 holding, 2 limited) and executions that all replicas ended; None: unknown."""
        self._brake_state.set_function(lambda: or_nan(state()))
        self._decisions_last_minute.set_function(lambda: or_nan(ended_last_minute()))

    def read_gate_from(self, closed_by: Callable[[], Mapping[Label, bool | None]]) -> None:
        """For each cause: does it close the safety gate? None: unknown."""
        read_from(self._gate_closed, self._values.gate_causes, closed_by)

    def set_workers(self, counts: Mapping[Label, int] | None) -> None:
        """Number of workers by availability, without those without a heartbeat for a day; None: unknown."""
        set_all(self._workers, self._values.availabilities, counts)

    def read_services_from(self, counts: Callable[[], Mapping[Label, int | None]]) -> None:
        """Number of the host's services to restart by finding; None: unknown."""
        read_from(self._services, self._values.service_findings, counts)

    def read_system_queues_from(self, missing: Callable[[], int | None]) -> None:
        self._system_queues_missing.set_function(lambda: or_nan(missing()))

    def set_canaries(
        self,
        counts: Mapping[Label, int] | None,
        *,
        oldest_age_seconds: float | None = None,
        slowest_seconds: float | None = None,
    ) -> None:
        """Number of workers by state of their canary, and the worst age and duration; None: unknown."""
        set_all(self._canary_workers, self._values.canary_states, counts)
        self._canary_age.set(oldest_age_seconds)
        self._canary_seconds.set(slowest_seconds)

    def read_flows_from(self, read: Callable[[], FlowFigures]) -> None:
        read_from(self._flows, self._values.flow_statuses, lambda: read().flows or {})
        read_from(self._flow_step_seconds, self._values.flow_steps, lambda: read().step_seconds or {})
        self._queues_leaked.set_function(lambda: or_nan(read().leaked))
        self._queues_orphaned.set_function(lambda: or_nan(read().orphans))
        read_from(
            self._archived,
            ARCHIVE_RECORDS,
            lambda: dict(zip(ARCHIVE_RECORDS, (read().archived, read().archived_beyond_limit), strict=True)),
        )

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, **labels: Iterable[str]) -> Counter:
        counter = Counter(name, text, tuple(labels), namespace="dlq_handler", registry=self.registry)
        return with_all(counter, labels.values())

    def _gauge(self, name: str, text: str, **labels: Iterable[str]) -> Gauge:
        gauge = Gauge(name, text, tuple(labels), namespace="dlq_handler", registry=self.registry)
        return with_all(gauge, labels.values())

    def _optional_gauge(self, name: str, text: str) -> OptionalGauge:
        gauge = OptionalGauge(name, text, namespace="dlq_handler", registry=self.registry)
        gauge.set(None)
        return gauge

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, text, namespace="dlq_handler", registry=self.registry, buckets=buckets)
