"""Metrics whose value may be unknown, and metrics with labels: what `metrics.py` builds them with."""

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import TypeVar

from prometheus_client import Counter, Gauge

Labelled = TypeVar("Labelled", Counter, Gauge)
Label = TypeVar("Label", bound=str)


class OptionalGauge(Gauge):
    """A gauge whose value may be unknown: None, exported as NaN."""

    def set(self, value: float | None) -> None:
        super().set(or_nan(value))


def with_all(metric: Labelled, values: Iterable[Iterable[str]]) -> Labelled:
    if values := list(values):
        for combination in product(*values):
            metric.labels(*combination)
    return metric


def set_all(gauge: Gauge, labels: Iterable[str], counts: Mapping[Label, int] | None) -> None:
    by_name = None if counts is None else by_label(counts)
    for label in labels:
        gauge.labels(label).set(or_nan(None if by_name is None else by_name.get(label, 0)))


def read_from(gauge: Gauge, labels: Iterable[str], read: Callable[[], Mapping[Label, float | None]]) -> None:
    def value_of(label: str) -> Callable[[], float]:
        return lambda: or_nan(by_label(read()).get(label))

    for label in labels:
        gauge.labels(label).set_function(value_of(label))


def by_label(values: Mapping[Label, float | None]) -> dict[str, float | None]:
    """A mapping by members of an enum is no mapping by strings for the type checker."""
    return {str(label): value for label, value in values.items()}


def or_nan(value: float | None) -> float:
    """NaN means "unknown"; the last known value would mean "all is well" all through an outage."""
    return float("nan") if value is None else value
