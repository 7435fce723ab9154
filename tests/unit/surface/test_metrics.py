"""Metrics are public API: on the page, complete from the first scrape, and deaf to what senders invent."""

import math

from dlq_handler.domain.gate import GateCause
from dlq_handler.domain.judge_canary import CanaryState, WorkerCanary
from dlq_handler.domain.verdict import Outcome
from dlq_handler.surface.metrics import Metrics
from dlq_handler.surface.metrics_reference import PAGE, metrics_page
from dlq_handler.surface.series import LINKS, NOTICE_OUTCOMES, REASONS


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"dlq_handler_{name}", labels)


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
