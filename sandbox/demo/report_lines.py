"""Sentences for what the auditor reports: one for many executions to which the same happened within a moment. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sandbox.demo.observed import ObservedState, numbers

# Only these statuses are reported: the picture shows the steps between.
_REPORTED = frozenset({"scheduled", "completed", "failed", "cancelled", "timeout", "abandoned"})

_BY = {
    "letter": "by dlq-handler, by its dead letter",
    "monitor": "by dlq-handler's monitor",
    "worker": "by its worker",
    "execution_timeout_monitor": "by Attune's own monitor",
}


class ReportLines:
    """Collects the reports of a moment until they are printed."""

    def __init__(self) -> None:
        self._groups: dict[str, set[int]] = defaultdict(set)

    def add(self, report: Mapping[str, Any], observed: ObservedState) -> None:
        """`observed`: as it is with this report."""
        names = {number: name for name, number in observed.workers.items()}
        for change in report.get("changes", ()):
            if change["status"] in _REPORTED:
                self._groups[_happened(change, names)].add(change["execution_id"])
        for completion in report.get("completions", ()):
            # A worker publishes what it completed: reported with the end itself.
            if completion["source"] != "worker" or completion["is_repeat"]:
                self._groups[_announced(completion)].add(completion["execution_id"])

    def flush(self) -> Iterable[str]:
        groups, self._groups = self._groups, defaultdict(set)
        return [f"{sentence}: {numbers(ids)}" for sentence, ids in groups.items()]


def _happened(change: Mapping[str, Any], worker_names: Mapping[int, str]) -> str:
    status = change["status"]
    if status == "scheduled":
        return f"dispatched to {worker_names.get(change['worker_id'], 'a worker')}"
    by = change["ended_by"]
    if status == "completed" and by == "worker":
        return "completed"
    return f"{status} {_BY.get(by, f'by {by}')}"


def _announced(completion: Mapping[str, Any]) -> str:
    if completion["is_repeat"]:
        return f"completion event published again by {completion['source']}, with the same id"
    return f"completion event published by {completion['source']}"
