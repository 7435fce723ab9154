"""Metrics are public API: on the page, complete from the first scrape, and deaf to what senders invent."""

import math
from collections.abc import Callable, Mapping

import pytest

from dlq_handler.domain.availability import Availability
from dlq_handler.domain.brake import BrakeMode
from dlq_handler.domain.gate import GateCause
from dlq_handler.domain.judge_canary import CanaryState, WorkerCanary
from dlq_handler.domain.reconcile import Finding
from dlq_handler.domain.stale_verdict import StaleOutcome
from dlq_handler.domain.verdict import Outcome
from dlq_handler.services.observer import BrakeSeen, Observer
from dlq_handler.surface.metrics import Metrics
from dlq_handler.surface.metrics_reference import PAGE, metrics_page
from dlq_handler.surface.series import LINKS, NOTICE_OUTCOMES, REASONS


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"dlq_handler_{name}", labels)


# What each fact makes of the samples, and of which: no other may change. All values differ, so that none passes for
# another, and seconds are told as seconds.
HEARD: Mapping[str, tuple[Callable[[Metrics], None], Mapping[str, float]]] = {
    "letter_judged": (
        lambda it: it.letter_judged("rejected", Outcome.STALE_ATTEMPT, 7.25),
        {
            "dead_letters_total{outcome=stale_attempt,reason=rejected}": 1,
            "verdict_latency_seconds_count": 1,
            "verdict_latency_seconds_sum": 7.25,
        },
    ),
    "letter_rejudged": (
        lambda it: it.letter_rejudged(Outcome.SUPERSEDED),
        {"dead_letters_rejudged_total{outcome=superseded}": 1},
    ),
    "batch_committed": (
        lambda it: it.batch_committed(31, 5, 0.75),
        {
            "batch_letters_count": 1,
            "batch_letters_sum": 31,
            "batch_seconds_count": 1,
            "batch_seconds_sum": 0.75,
            "dead_letters_held_over_total": 5,
        },
    ),
    "letter_repeated": (lambda it: it.letter_repeated(6), {"dead_letter_repeats_total": 6}),
    "notices_settled": (
        lambda it: it.notices_settled("refused", 8),
        {"notices_total{outcome=refused}": 8},
    ),
    "notices_announced": (
        lambda it: it.notices_announced([48.5, 0.25]),
        {"announce_latency_seconds_count": 2, "announce_latency_seconds_sum": 48.75},
    ),
    "canaries_arrived": (lambda it: it.canaries_arrived(9), {"canaries_arrived_total": 9}),
    "reconnected": (lambda it: it.reconnected("publisher"), {"reconnects_total{link=publisher}": 1}),
    "loop_lagged": (
        lambda it: it.loop_lagged(1.5),
        {"loop_lag_seconds_count": 1, "loop_lag_seconds_sum": 1.5},
    ),
    "intake_reopened": (lambda it: it.intake_reopened(), {"intake_opened_total": 1}),
    "intake_seen": (lambda it: it.intake_seen(12, 3), {"dlq_messages": 12, "dlq_consumers": 3}),
    "oldest_letter_seen": (lambda it: it.oldest_letter_seen(13.5), {"dlq_oldest_age_seconds": 13.5}),
    "leaked_slots_seen": (lambda it: it.leaked_slots_seen(14), {"slots_leaked": 14}),
    "outbox_seen": (
        lambda it: it.outbox_seen(17, 16.5, 15),
        {"outbox_pending": 17, "outbox_oldest_age_seconds": 16.5, "outbox_unroutable": 15},
    ),
    "brake_built": (
        lambda it: it.brake_built(lambda: BrakeSeen(mode=BrakeMode.LIMITED, ended_last_minute=18)),
        {"brake_state": 2, "verdicts_last_minute": 18},
    ),
    "brake_tripped": (lambda it: it.brake_tripped(), {"brake_trips_total": 1}),
    "gate_built": (
        lambda it: it.gate_built({GateCause.CLOCK_JUMP: True, GateCause.YOUNG_LINK: False}.get),
        {"gate_closed{cause=clock_jump}": 1, "gate_closed{cause=young_link}": 0},
    ),
    "workers_seen": (
        lambda it: it.workers_seen(
            {Availability.AVAILABLE: 19, Availability.LATE: 20, Availability.UNAVAILABLE: 21}
        ),
        {
            "workers{availability=available}": 19,
            "workers{availability=late}": 20,
            "workers{availability=unavailable}": 21,
            "workers{availability=cannot_tell}": 0,
        },
    ),
    "unattended_queues_seen": (
        lambda it: it.unattended_queues_seen(22),
        {"worker_queues_unattended": 22},
    ),
    "leadership_built": (lambda it: it.leadership_built(lambda: True), {"leader": 1}),
    "stale_found": (
        lambda it: it.stale_found("running", StaleOutcome.ABANDONED),
        {"stale_executions_total{original_status=running,outcome=abandoned}": 1},
    ),
    "sweep_finished": (
        lambda it: it.sweep_finished(23.5),
        {"sweep_seconds_count": 1, "sweep_seconds_sum": 23.5},
    ),
    "reconciled": (
        lambda it: it.reconciled(Finding.SILENT_END, 24),
        {"reconciled_total{finding=silent_end}": 24},
    ),
    "canaries_seen": (
        lambda it: it.canaries_seen(
            [WorkerCanary(worker_id=7, state=CanaryState.OK, why="", took_seconds=5.5, seen_seconds_ago=2.25)]
        ),
        {
            "canary_workers{state=ok}": 1,
            "canary_workers{state=lost}": 0,
            "canary_workers{state=cannot_tell}": 0,
            "canary_age_seconds": 2.25,
            "canary_seconds": 5.5,
        },
    ),
    "notified": (lambda it: it.notified(is_delivered=False), {"notifications_total{result=failed}": 1}),
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


@pytest.mark.parametrize("fact", [name for name in vars(Observer) if not name.startswith("_")])
def test_each_fact_changes_its_own_samples_by_what_was_told_and_no_others(fact: str) -> None:
    assert fact in HEARD, f"say in HEARD what {fact} makes of which samples"
    tell, wanted = HEARD[fact]
    metrics = Metrics()
    before = exported(metrics)
    tell(metrics)
    after = exported(metrics)
    assert after.keys() == before.keys(), "a series was born"
    # Compared as they are printed: NaN is not even itself.
    assert {name: value for name, value in after.items() if repr(value) != repr(before[name])} == wanted


def test_every_label_combination_exists_at_zero_from_the_first_scrape() -> None:
    metrics = Metrics()
    for reason in REASONS:
        for outcome in Outcome:
            assert sample(metrics, "dead_letters_total", reason=reason, outcome=outcome.value) == 0
    for answer in NOTICE_OUTCOMES:
        assert sample(metrics, "notices_total", outcome=answer) == 0
    for link in LINKS:
        assert sample(metrics, "reconnects_total", link=link) == 0
    assert not labelled_without_series(metrics)


def labelled_without_series(metrics: Metrics) -> list[str]:
    return [family.name for family in metrics.registry.collect() if not family.samples]


def test_shared_state_cannot_be_told_before_somebody_has_looked() -> None:
    metrics = Metrics()
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
    ):
        assert math.isnan(sample(metrics, name) or 0), name
    for cause in GateCause:
        assert math.isnan(sample(metrics, "gate_closed", cause=cause.value) or 0), cause


def test_forged_reasons_do_not_make_new_series() -> None:
    metrics = Metrics()
    series = metrics.exposition().count(b"\n")
    for number in range(50):
        metrics.letter_judged(f"made up {number}", Outcome.FAILED, None)
    assert metrics.exposition().count(b"\n") == series
    assert sample(metrics, "dead_letters_total", reason="other", outcome="failed") == 50


def test_what_cannot_be_asked_is_not_a_number() -> None:
    metrics = Metrics()
    metrics.intake_seen(7, 1)
    metrics.intake_seen(None, None)
    assert math.isnan(sample(metrics, "dlq_messages") or 0)


def test_canaries_are_counted_by_state_and_the_oldest_and_the_slowest_is_told() -> None:
    metrics = Metrics()
    assert math.isnan(sample(metrics, "canary_workers", state="lost") or 0)
    metrics.canaries_seen(
        [
            WorkerCanary(worker_id=7, state=CanaryState.OK, why="", took_seconds=5.5, seen_seconds_ago=2.0),
            WorkerCanary(
                worker_id=8, state=CanaryState.LOST, why="", took_seconds=5.1, seen_seconds_ago=90.0
            ),
            WorkerCanary(worker_id=9, state=CanaryState.LOST, why=""),
        ]
    )
    counts = {state.value: sample(metrics, "canary_workers", state=state.value) for state in CanaryState}
    assert counts == {"ok": 1, "lost": 2, "cannot_tell": 0}
    assert (sample(metrics, "canary_age_seconds"), sample(metrics, "canary_seconds")) == (90, 5.5)
    metrics.canaries_seen(None)
    for name in ("canary_age_seconds", "canary_seconds"):
        assert math.isnan(sample(metrics, name) or 0)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == metrics_page(), (
        f"{PAGE} is out of date: python -m dlq_handler.surface.metrics_reference"
    )
