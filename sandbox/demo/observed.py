"""The state of the demo as the auditor reports it: what the picture shows and what the acts wait for. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox.auditor.ledger import TERMINAL

BY_US = frozenset({"letter", "monitor"})


@dataclass(slots=True)
class ObservedExecution:
    """One execution."""

    status: str = "requested"
    worker_id: int | None = None
    ended_by: str | None = None
    given_back: int = 0
    """How often the scheduler took it up and put it back to `requested`."""


@dataclass(slots=True)
class ObservedState:
    executions: dict[int, ObservedExecution] = field(default_factory=dict)
    completion_ids: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    line: list[tuple[int, str]] = field(default_factory=list)
    """(execution id, 'active' or 'queued') of core.slow."""
    workers: dict[str, int] = field(default_factory=dict)
    cordoned: set[str] = field(default_factory=set)
    """Names of workers that get no new work."""
    queues: dict[str, int] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    """Executions whose request Attune lost: what becomes of them is dlq-handler's work."""
    violations: list[str] = field(default_factory=list)
    audit: Mapping[str, Any] | None = None

    def take(self, report: Mapping[str, Any]) -> None:
        """One report of the auditor."""
        match report["kind"]:
            case "changes":
                for change in report["changes"]:
                    self._take_change(change)
            case "completions":
                for completion in report["completions"]:
                    self.completion_ids[completion["execution_id"]].add(completion["message_id"])
            case "picture":
                self._take_picture(report)
            case "away" | "back":
                pass
            case "violation":
                self.violations.append(f"{report['promise']}: executions {numbers(report['execution_ids'])}")
            case "audit":
                self.audit = report
            case unknown:
                raise ValueError(f"the auditor reports {unknown!r}, an unknown kind")

    def _take_change(self, change: Mapping[str, Any]) -> None:
        seen = self.executions.setdefault(change["execution_id"], ObservedExecution())
        if seen.status == "scheduling" and change["status"] == "requested":
            seen.given_back += 1
        seen.status = change["status"] or seen.status
        seen.worker_id = change["worker_id"] or seen.worker_id
        seen.ended_by = change["ended_by"] or seen.ended_by

    def _take_picture(self, report: Mapping[str, Any]) -> None:
        self.line = [(number, status) for number, status in report["line"]]
        self.workers = {worker["name"]: worker["id"] for worker in report["workers"]}
        self.cordoned = set(report["cordoned"])
        self.queues = dict(report["queues"])

    def statuses(self) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for seen in self.executions.values():
            found[seen.status] += 1
        return found

    def in_status(self, ids: Iterable[int], *statuses: str) -> list[int]:
        return [n for n in ids if n in self.executions and self.executions[n].status in statuses]

    def over(self, ids: Iterable[int]) -> list[int]:
        return self.in_status(ids, *TERMINAL)

    def announced(self, ids: Iterable[int]) -> list[int]:
        return [number for number in ids if self.completion_ids.get(number)]

    def are_settled(self, ids: Iterable[int]) -> bool:
        """Over, and announced."""
        ids = list(ids)
        return len(self.over(ids)) == len(ids) == len(self.announced(ids))

    def ended_by(self, ids: Iterable[int], who: str) -> list[int]:
        return [n for n in ids if n in self.executions and self.executions[n].ended_by == who]

    def on_worker(self, ids: Iterable[int], name: str) -> list[int]:
        worker_id = self.workers.get(name)
        return [
            number
            for number in ids
            if worker_id is not None
            and number in self.executions
            and self.executions[number].worker_id == worker_id
        ]

    def rescued(self) -> int:
        """How many were ended by dlq-handler, or dispatched because it repeated their request."""
        return sum(
            seen.ended_by in BY_US or (number in self.lost and seen.status != "requested")
            for number, seen in self.executions.items()
        )


def numbers(ids: Iterable[int]) -> str:
    """1, 2, 3, 5 as "1-3, 5"."""
    runs: list[list[int]] = []
    for number in sorted(ids):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
