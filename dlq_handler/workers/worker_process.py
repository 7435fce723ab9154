"""Which process of a worker began a run, by the connection that consumes the worker's queue. Pure: no clock, no I/O.

A host whose services never reconnect has a new connection only with a new process. A process that began a run was
consuming at that moment, so a check after that moment without the present connection proves that another process began
the run. All times are the database's. The broker's clock is compared only with itself, for the age of a connection.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto

# The broker's Date header is up to 2 s old, the clocks of its nodes differ a little, and so do those of two database
# servers after a failover.
MARGIN_SECONDS = 5.0

# For so long a connection that is not found counts as unknown, not as lost. Twice the pause after a failure of the
# management API, so that no run ends because of one answer that is missing.
KEPT_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionObservation:
    """The management API's answer about the consumers of one worker's queue."""

    names: frozenset[str]
    """Of their connections; empty: no consumer, or no queue."""
    age_seconds: float | None = None
    """At most so old is the one connection in `names`, by the broker's clock. None: not asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownConnection:
    """What the leaders' checks have found about the connection that consumes one worker's queue."""

    worker_id: int
    checked_at: datetime
    """Before the last check, whether it was answered or not."""
    observed_at: datetime | None = None
    """Before the last check that found one connection, or no consumer. None: there was no such check."""
    connection: str | None = None
    """The last one that was found alone. None: none was."""
    absent_at: datetime | None = None
    """A check at this time did not find the connection, which is not older either. None: there was no such check."""
    found_at: datetime | None = None
    """After the first check that found this connection alone. None without a connection."""
    missing_since: datetime | None = None
    """The first check since then that did not find it. None: the last check found it."""
    shared_from: datetime | None = None
    """The last check that found it alone before checks found others as well. None: no check did."""
    shared_since: datetime | None = None
    """The first check that found others."""
    shared_until: datetime | None = None
    """After the first check that found it alone again; before there is one, after the last check that found others."""

    @property
    def alone_since(self) -> datetime | None:
        """After the first check that found it alone, with no later check that found others.

        A check that finds others again proves that the checks without them were incomplete.
        """
        moments = [one for one in (self.found_at, self.shared_until) if one is not None]
        return max(moments, default=None)

    @property
    def is_still_shared(self) -> bool:
        """No check has found it alone since the checks that found others."""
        if self.shared_since is None or self.observed_at is None:
            return False
        return self.observed_at < self.shared_since

    def is_proven(self, updated: datetime) -> bool:
        """The process of `connection` began a run that was last changed at this time."""
        return self.found_at is not None and updated >= self.found_at and not self.is_shared(updated)

    def is_shared(self, updated: datetime) -> bool:
        """Others consumed beside it at this time, or may have."""
        if self.shared_from is None or self.shared_until is None:
            return False
        return self.shared_from < updated < self.shared_until

    def unknown_since(self, updated: datetime) -> datetime:
        """The first check since which it is unknown which process began this run."""
        if self.found_at is not None and updated < self.found_at:
            return self.found_at
        if self.missing_since is not None:
            return self.missing_since
        return self.shared_since or self.checked_at


def observe_again(
    worker_id: int,
    before: KnownConnection | None,
    answer: ConnectionObservation | None,
    *,
    checked_at: datetime,
    answered_at: datetime,
) -> KnownConnection:
    """`checked_at`, `answered_at`: the database's time before and after the check. `answer` None: it was not clear."""
    if before is None or before.checked_at > checked_at:
        # Or the database's clock was set back. Compared with times from before that, a live run could appear older
        # than the connection that began it.
        before = KnownConnection(worker_id=worker_id, checked_at=checked_at)
    known = replace(before, checked_at=checked_at)
    if answer is None or (before.connection not in answer.names and len(answer.names) != 1):
        # Kept: one answer that is missing, or that lists no consumer while the plugin restarts, must not end a run that
        # was known to be the present process's.
        known = replace(known, missing_since=before.missing_since or checked_at)
        if answer is None:
            return known
        if answer.names:
            return _shared(known, answered_at)
        # After checks that found others, an empty list does not show that the connection is alone again.
        return known if before.is_still_shared else replace(known, observed_at=checked_at)
    if len(answer.names) > 1:
        return _shared(replace(known, missing_since=None), answered_at)
    [name] = answer.names
    is_same_name = before.connection == name
    if is_same_name and not _is_younger(before, answer, checked_at):
        shared_until = answered_at if before.is_still_shared else before.shared_until
        return replace(known, observed_at=checked_at, missing_since=None, shared_until=shared_until)
    if is_same_name or before.observed_at is None or answer.age_seconds is None:
        absent_at = None
    else:
        # RabbitMQ lists a consumer up to one statistics interval late (5 s by default), and lists none for a while
        # after its management plugin was restarted. The age shows that such a check missed the consumer.
        absent_at = min(before.observed_at, checked_at - timedelta(seconds=answer.age_seconds))
    return KnownConnection(
        worker_id=worker_id,
        checked_at=checked_at,
        observed_at=checked_at,
        connection=name,
        absent_at=absent_at,
        found_at=answered_at,
    )


def _shared(known: KnownConnection, answered_at: datetime) -> KnownConnection:
    """Others consume beside the connection, or without it. Which of them begins a run from now on is unknown, even when
    it is alone again: the one that took work beside it may have ended by then. This check has found others, so its time
    does not count as `observed_at`.
    """
    is_first = not known.is_still_shared
    return replace(
        known,
        # Only the last time counts. What began in an earlier one is left alone: in doubt dlq-handler waits.
        shared_from=known.observed_at if is_first else known.shared_from,
        shared_since=known.checked_at if is_first else known.shared_since,
        shared_until=answered_at,
    )


def _is_younger(before: KnownConnection, answer: ConnectionObservation, checked_at: datetime) -> bool:
    """Another connection has the name, because the worker was restarted and its old port was used again."""
    if before.found_at is None or answer.age_seconds is None:
        return False
    return checked_at - timedelta(seconds=answer.age_seconds + MARGIN_SECONDS) > before.found_at


class Began(Enum):
    """Who began a run."""

    BY_PRESENT = auto()
    """The process that consumes the worker's queue now."""
    BY_FORMER = auto()
    """A process that has ended."""
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    """What one check found out about the process of a worker, where a new connection is a new process."""

    known: KnownConnection
    """What is known after the check."""
    is_found: bool = True
    """`known.connection` consumes the queue now, alone or beside others."""
    trouble: str | None = None
    """Why this check did not find it alone. None: it did."""

    @property
    def former_until(self) -> datetime | None:
        """Runs that began before this time were begun by a process that has ended. None: unknown of any run."""
        if self.trouble is not None or self.known.absent_at is None:
            return None
        return self.known.absent_at - timedelta(seconds=MARGIN_SECONDS)

    @property
    def known_from(self) -> datetime | None:
        """Runs that began earlier were not begun by the present process, as far as is known. None: unknown of any."""
        return self.known.found_at if self.is_found else None

    def began(self, updated: datetime) -> Began:
        """`updated`: the last change of a row that is running.

        A row that was changed after the run began appears younger than the run. So a run of a former process is left
        alone if its row was changed after the restart; no live run is taken for a former process's by that.
        """
        if self.former_until is not None and updated < self.former_until:
            return Began.BY_FORMER
        if self.is_found and self.known.is_proven(updated):
            return Began.BY_PRESENT
        return Began.UNKNOWN

    def began_all_since(self, updated: datetime) -> bool:
        """The present process began each run whose last change was at this time or later."""
        until = self.known.shared_until
        return self.began(updated) is Began.BY_PRESENT and (until is None or updated >= until)

    @property
    def unknown_explanation(self) -> str:
        return self.trouble or "the connection that consumes its queue may have begun after this run"


def view_of(known: KnownConnection, answer: ConnectionObservation | None, trouble: str) -> ProcessView:
    """`known`: what is known after this check. `answer` None: there was no clear answer, because of `trouble`."""
    if answer is None:
        return ProcessView(known=known, is_found=False, trouble=trouble)
    is_found = known.connection in answer.names
    if len(answer.names) == 1:
        return ProcessView(known=known, is_found=is_found)
    if not answer.names:
        return ProcessView(known=known, is_found=False, trouble="its queue has no consumer")
    several = f"its queue has consumers on {len(answer.names)} connections"
    return ProcessView(known=known, is_found=is_found, trouble=several)
