"""What the auditor has seen, kept for the whole story, and what follows from it. Pure: no I/O, no clock.

An *end* is one change of a row from an open status to a terminal one. It belongs to one attempt, so it needs exactly
one completion event. The message id identifies an event: another id for the same end is a second event. The same id
again is a repeat: allowed around an outage of the sidecar or a server (outages.py), otherwise a second event too.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sandbox.auditor.outages import Outages

TERMINAL = ("completed", "failed", "cancelled", "timeout", "abandoned")


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalRow:
    """What may never change again."""

    id: int
    status: str
    updated: datetime
    result_md5: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row of the host's audit_event: the status afterwards, or None where only something else changed."""

    number: int
    execution_id: int
    action_ref: str
    status: str | None
    worker_id: int | None = None
    ended_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionEvent:
    execution_id: int
    message_id: str
    status: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A promise that was broken, and for which executions."""

    promise: str
    execution_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Counts for each promise, and the ids of the executions for which it was broken. `repeats` are allowed ones."""

    dispatched: int
    open: tuple[int, ...]
    ends: int
    silent: tuple[int, ...]
    doubled: tuple[int, ...]
    repeats: int
    terminal: int
    changed: tuple[int, ...]
    retired: int
    """Executions that were ever dispatched to a worker that is retired."""
    retired_open: tuple[int, ...]


@dataclass(slots=True)
class Ledger:
    losses: Outages
    _numbers: set[int] = field(default_factory=set)
    _status: dict[int, str] = field(default_factory=dict)
    _dispatched: set[int] = field(default_factory=set)
    _dispatched_to: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By worker."""
    retired_workers: set[int] = field(default_factory=set)
    _ends: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _reopened: set[int] = field(default_factory=set)
    _completion_ids: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    _first_seen: dict[str, float] = field(default_factory=dict)
    _repeats: int = 0
    _said_twice: set[int] = field(default_factory=set)
    _first_terminal: dict[int, TerminalRow] = field(default_factory=dict)
    _touched: set[int] = field(default_factory=set)

    def take_changes(self, changes: Iterable[Change]) -> list[Change]:
        """The ones not seen before, in their order."""
        fresh = [change for change in changes if change.number not in self._numbers]
        for change in fresh:
            self._numbers.add(change.number)
            self._take_change(change)
        return fresh

    def _take_change(self, change: Change) -> None:
        number, status = change.execution_id, change.status
        if self._status.get(number) in TERMINAL:
            # Whatever was changed, and by whomever: the row was over.
            self._reopened.add(number)
        if status is None:
            return
        if status == "scheduled":
            self._dispatched.add(number)
            if change.worker_id is not None:
                self._dispatched_to[change.worker_id].add(number)
        if status in TERMINAL and self._status.get(number) not in TERMINAL:
            self._ends[number] += 1
        self._status[number] = status

    def take_completion(self, completion: CompletionEvent, *, at: float, redelivered: bool = False) -> bool:
        """True when its id was seen before. One that the broker hands to us again is not even a repeat."""
        ids = self._completion_ids[completion.execution_id]
        is_repeat = completion.message_id in ids
        first_at = self._first_seen.setdefault(completion.message_id, at)
        if is_repeat and not redelivered:
            if self.losses.excuse(first_at=first_at, again_at=at):
                self._repeats += 1
            else:
                self._said_twice.add(completion.execution_id)
        ids.add(completion.message_id)
        return is_repeat

    def take_rows(self, rows: Mapping[int, TerminalRow]) -> None:
        """All rows that are terminal now. Each must stay as it was when it was first read."""
        for number, row in rows.items():
            if self._first_terminal.setdefault(number, row) != row:
                self._touched.add(number)
        self._touched |= self._first_terminal.keys() - rows.keys()

    def completion_counts(self) -> dict[int, int]:
        """Completion events of each execution, repeats not counted."""
        return {number: len(ids) for number, ids in self._completion_ids.items()}

    def violations(self, completions: Mapping[int, int]) -> list[Violation]:
        """Violations that no later event can repair.

        `completions` is counted before the changes were read: an end is committed before its event is published, so
        an event that arrived since may belong to an end that was not read yet.
        """
        doubled = self._doubled(completions)
        changed = tuple(sorted(self._reopened | self._touched))
        found = []
        if doubled:
            found.append(Violation(promise="announced once", execution_ids=doubled))
        if changed:
            found.append(Violation(promise="terminal rows unchanged", execution_ids=changed))
        return found

    def audit(self) -> Audit:
        counts = self.completion_counts()
        ended = {number for number, ends in self._ends.items() if ends}
        retired = {number for worker in self.retired_workers for number in self._dispatched_to[worker]}
        return Audit(
            dispatched=len(self._dispatched),
            open=self._open(self._dispatched),
            ends=sum(self._ends.values()),
            silent=tuple(sorted(n for n in ended if counts.get(n, 0) < self._ends[n])),
            doubled=self._doubled(counts),
            repeats=self._repeats,
            terminal=len(self._first_terminal),
            changed=tuple(sorted(self._reopened | self._touched)),
            retired=len(retired),
            retired_open=self._open(retired),
        )

    def _open(self, numbers: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted(number for number in numbers if self._status[number] not in TERMINAL))

    def _doubled(self, completions: Mapping[int, int]) -> tuple[int, ...]:
        too_many = {number for number, count in completions.items() if count > self._ends.get(number, 0)}
        return tuple(sorted(too_many | self._said_twice))
