"""Metrics are public API: on the page, complete from the first scrape, and deaf to what senders invent."""

import math
from collections.abc import Callable, Mapping

import pytest
from prometheus_client import CollectorRegistry

from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.diagnosis.check_services import ServiceFinding
from dlq_handler.metric_values import OTHER_REASON, FlowFigures
from dlq_handler.metrics import LINKS, PUBLISH_OUTCOMES, Metrics
from dlq_handler.rooms import LABEL_VALUES, new_metrics
from dlq_handler.safety.gate import GateCause
from dlq_handler.topology.canary import CanaryState
from dlq_handler.workers.availability import Availability
from scripts.metrics_reference import PAGE, metrics_page


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"dlq_handler_{name}", labels)


# The samples that each method changes; no other may change. All values differ, so that none passes for another, and
# seconds are exported as seconds.
CHANGED: Mapping[str, tuple[Callable[[Metrics], None], Mapping[str, float]]] = {
    "count_dead_letter": (
        lambda it: it.count_dead_letter("rejected", Outcome.STALE_ATTEMPT, 7.25),
        {
            "dead_letters_total{outcome=stale_attempt,reason=rejected}": 1,
            "decision_latency_seconds_count": 1,
            "decision_latency_seconds_sum": 7.25,
        },
    ),
    "observe_batch": (
        lambda it: it.observe_batch(31, 5, 0.75),
        {
            "batch_dead_letters_count": 1,
            "batch_dead_letters_sum": 31,
            "batch_seconds_count": 1,
            "batch_seconds_sum": 0.75,
            "dead_letters_postponed_total": 5,
        },
    ),
    "observe_publish_latencies": (
        lambda it: it.observe_publish_latencies([48.5, 0.25]),
        {"completion_event_latency_seconds_count": 2, "completion_event_latency_seconds_sum": 48.75},
    ),
    "count_reconnect": (lambda it: it.count_reconnect("publisher"), {"reconnects_total{link=publisher}": 1}),
    "set_outbox": (
        lambda it: it.set_outbox(17, 16.5, 15),
        {"outbox_pending": 17, "outbox_oldest_age_seconds": 16.5, "outbox_unroutable": 15},
    ),
    "read_brake_from": (
        lambda it: it.read_brake_from(state=lambda: 2, ended_last_minute=lambda: 18),
        {"brake_state": 2, "decisions_last_minute": 18},
    ),
    "read_gate_from": (
        lambda it: it.read_gate_from(lambda: {GateCause.CLOCK_JUMP: True, GateCause.YOUNG_LINK: False}),
        {"gate_closed{cause=clock_jump}": 1, "gate_closed{cause=young_link}": 0},
    ),
    "set_workers": (
        lambda it: it.set_workers(
            {Availability.AVAILABLE: 19, Availability.LATE: 20, Availability.UNAVAILABLE: 21}
        ),
        {
            "workers{availability=available}": 19,
            "workers{availability=late}": 20,
            "workers{availability=unavailable}": 21,
            "workers{availability=unknown}": 0,
        },
    ),
    "read_system_queues_from": (
        lambda it: it.read_system_queues_from(lambda: 2),
        {"system_queues_missing": 2},
    ),
    "read_services_from": (
        lambda it: it.read_services_from(
            lambda: {
                ServiceFinding.EXECUTOR_WITHOUT_CONSUMER: 1,
                ServiceFinding.WORKER_WITHOUT_CONSUMER: 3,
                ServiceFinding.WORKER_INACTIVE: None,
            }
        ),
        {
            "services_to_restart{finding=executor_without_consumer}": 1,
            "services_to_restart{finding=worker_without_consumer}": 3,
        },
    ),
    "set_canaries": (
        lambda it: it.set_canaries({CanaryState.OK: 1}, oldest_age_seconds=2.25, slowest_seconds=5.5),
        {
            "canary_workers{state=ok}": 1,
            "canary_workers{state=lost}": 0,
            "canary_workers{state=unknown}": 0,
            "canary_age_seconds": 2.25,
            "canary_seconds": 5.5,
        },
    ),
    "read_flows_from": (
        lambda it: it.read_flows_from(
            lambda: FlowFigures(
                flows={"active": 22, "stopping": 23},
                step_seconds={"idle": 24.5},
                leaked=25,
                archived=26,
                archived_beyond_limit=27,
                orphans=28,
            )
        ),
        {
            "flows{status=active}": 22,
            "flows{status=stopping}": 23,
            "flow_step_seconds{step=idle}": 24.5,
            "queues_leaked": 25,
            "flow_messages_archived{record=recorded}": 26,
            "flow_messages_archived{record=counted}": 27,
            "queues_orphaned": 28,
        },
    ),
}


def exported(metrics: Metrics) -> dict[str, float]:
    """Every sample of ours, without the buckets, which follow from their sum and count."""
    samples = {}
    for family in metrics.registry.collect():
        for one in family.samples:
            if one.name.startswith("dlq_handler_") and not one.name.endswith("_bucket"):
                labels = ",".join(f"{name}={value}" for name, value in sorted(one.labels.items()))
                name = one.name.removeprefix("dlq_handler_")
                samples[f"{name}{{{labels}}}" if labels else name] = one.value
    return samples


METHODS = [
    name
    for name, method in vars(Metrics).items()
    if callable(method) and not name.startswith("_") and name not in ("exposition", "gate_closed_by")
]


@pytest.mark.parametrize("name", METHODS)
def test_each_method_changes_its_own_samples_and_no_others(name: str) -> None:
    assert name in CHANGED, f"add {name} to CHANGED with the samples that it changes"
    call, wanted = CHANGED[name]
    metrics = new_metrics()
    before = exported(metrics)
    call(metrics)
    after = exported(metrics)
    assert after.keys() == before.keys(), "a series was added"
    # Compared as they are printed: NaN is not even itself.
    assert {name: value for name, value in after.items() if repr(value) != repr(before[name])} == wanted


def test_a_metric_that_services_use_as_it_is_has_its_exported_name() -> None:
    public = {name: value for name, value in vars(new_metrics()).items() if not name.startswith("_")}
    assert isinstance(public.pop("registry"), CollectorRegistry)
    assert len(public) > 10
    for name, metric in public.items():
        [family] = metric.collect()
        assert family.name == f"dlq_handler_{name}"


def test_every_label_combination_exists_at_zero_from_the_first_scrape() -> None:
    metrics = new_metrics()
    for reason in (*LABEL_VALUES.reasons, OTHER_REASON):
        for outcome in Outcome:
            assert sample(metrics, "dead_letters_total", reason=reason, outcome=outcome.value) == 0
    for answer in PUBLISH_OUTCOMES:
        assert sample(metrics, "completion_events_total", outcome=answer) == 0
    for link in LINKS:
        assert sample(metrics, "reconnects_total", link=link) == 0
    for status, end in LABEL_VALUES.stale_outcomes:
        assert sample(metrics, "stale_executions_total", original_status=status, outcome=end) == 0
    assert not labelled_without_series(metrics)


def labelled_without_series(metrics: Metrics) -> list[str]:
    return [family.name for family in metrics.registry.collect() if not family.samples]


def test_shared_state_is_unknown_before_the_first_check() -> None:
    metrics = new_metrics()
    for name in (
        "dlq_messages",
        "dlq_consumers",
        "dlq_oldest_age_seconds",
        "outbox_pending",
        "outbox_oldest_age_seconds",
        "outbox_unroutable",
        "brake_state",
        "slots_leaked",
        "worker_queues_unattended",
        "queues_leaked",
        "queues_orphaned",
    ):
        assert math.isnan(sample(metrics, name) or 0), name
    for cause in GateCause:
        assert math.isnan(sample(metrics, "gate_closed", cause=cause.value) or 0), cause
    for state in CanaryState:
        assert math.isnan(sample(metrics, "canary_workers", state=state.value) or 0), state


def test_forged_reasons_do_not_make_new_series() -> None:
    metrics = new_metrics()
    series = metrics.exposition().count(b"\n")
    for number in range(50):
        metrics.count_dead_letter(f"made up {number}", Outcome.FAILED, None)
    assert metrics.exposition().count(b"\n") == series
    assert sample(metrics, "dead_letters_total", reason="other", outcome="failed") == 50


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == metrics_page(), f"{PAGE} is out of date: ./run references"
