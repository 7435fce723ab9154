"""What the auditor has seen, kept for the whole story, and what follows from it. Pure: no I/O, no clock.

An *end* is one change of a row from an open status to a terminal one. It belongs to one attempt, so it needs exactly
one notice. A notice is known by its message id. Another id for the same end is a second notice. The same id again is a
repeat: allowed around an outage of the sidecar or a server (outages.py), otherwise a second notice too.
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
class Notice:
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


@dataclass(slots=True)
class Ledger:
    losses: Outages
    _numbers: set[int] = field(default_factory=set)
    _status: dict[int, str] = field(default_factory=dict)
    _dispatched: set[int] = field(default_factory=set)
    _ends: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _reopened: set[int] = field(default_factory=set)
    _notice_ids: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
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
        if status in TERMINAL and self._status.get(number) not in TERMINAL:
            self._ends[number] += 1
        self._status[number] = status

    def take_notice(self, notice: Notice, *, at: float, redelivered: bool = False) -> bool:
        """True when its id was seen before. One that the broker hands to us again is not even a repeat."""
        ids = self._notice_ids[notice.execution_id]
        is_repeat = notice.message_id in ids
        first_at = self._first_seen.setdefault(notice.message_id, at)
        if is_repeat and not redelivered:
            if self.losses.excuse(first_at=first_at, again_at=at):
                self._repeats += 1
            else:
                self._said_twice.add(notice.execution_id)
        ids.add(notice.message_id)
        return is_repeat

    def take_rows(self, rows: Mapping[int, TerminalRow]) -> None:
        """All rows that are terminal now. Each must stay as it was when it was first read."""
        for number, row in rows.items():
            if self._first_terminal.setdefault(number, row) != row:
                self._touched.add(number)
        self._touched |= self._first_terminal.keys() - rows.keys()

    def notice_counts(self) -> dict[int, int]:
        """Notices of each execution, repeats not counted."""
        return {number: len(ids) for number, ids in self._notice_ids.items()}

    def violations(self, notices: Mapping[int, int]) -> list[Violation]:
        """What can never be made good again. `notices`: counted before the changes were read, as an end is committed
        before it is announced: a notice that came since may belong to an end we have not read yet.
        """
        doubled = self._doubled(notices)
        changed = tuple(sorted(self._reopened | self._touched))
        found = []
        if doubled:
            found.append(Violation(promise="announced once", execution_ids=doubled))
        if changed:
            found.append(Violation(promise="terminal rows unchanged", execution_ids=changed))
        return found

    def audit(self) -> Audit:
        counts = self.notice_counts()
        ended = {number for number, ends in self._ends.items() if ends}
        return Audit(
            dispatched=len(self._dispatched),
            open=tuple(sorted(n for n in self._dispatched if self._status[n] not in TERMINAL)),
            ends=sum(self._ends.values()),
            silent=tuple(sorted(n for n in ended if counts.get(n, 0) < self._ends[n])),
            doubled=self._doubled(counts),
            repeats=self._repeats,
            terminal=len(self._first_terminal),
            changed=tuple(sorted(self._reopened | self._touched)),
        )

    def _doubled(self, notices: Mapping[int, int]) -> tuple[int, ...]:
        too_many = {number for number, count in notices.items() if count > self._ends.get(number, 0)}
        return tuple(sorted(too_many | self._said_twice))
