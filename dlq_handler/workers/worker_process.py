"""Which process of a worker began a run, by the connection that consumes the worker's queue. Pure: no clock, no I/O.

A host whose services never reconnect has a new connection only with a new process. A process that began a run was
consuming at that moment, so a look after that moment without the present connection proves that another process began
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
    """What the leaders' looks say of the connection that consumes one worker's queue."""

    worker_id: int
    checked_at: datetime
    """Before the last look, whether it was answered or not."""
    observed_at: datetime | None = None
    """Before the last look that found one connection, or no consumer. None: there was no such look."""
    connection: str | None = None
    """The last one that was found alone. None: none was."""
    absent_at: datetime | None = None
    """A look at this time did not find the connection, which is not older either. None: there was no such look."""
    found_at: datetime | None = None
    """After the first of the looks that found this connection alone. None without a connection."""
    missing_since: datetime | None = None
    """The first of the looks since then that did not find it. None: the last look found it."""
    shared_from: datetime | None = None
    """The last look that found it alone before looks found others as well. None: none did."""
    shared_since: datetime | None = None
    """The first look that found others."""
    shared_until: datetime | None = None
    """After the first look that found it alone again; before there is one, after the last look that found others."""

    @property
    def alone_since(self) -> datetime | None:
        """After the first of the looks that found it alone, without one in between that found others.

        A look that found others again proves that the earlier ones without them were blind.
        """
        moments = [one for one in (self.found_at, self.shared_until) if one is not None]
        return max(moments, default=None)

    @property
    def is_still_shared(self) -> bool:
        """No look has found it alone since the looks that found others."""
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
        """The first look since which it is unknown what began this run."""
        if self.found_at is not None and updated < self.found_at:
            return self.found_at
        if self.missing_since is not None:
            return self.missing_since
        return self.shared_since or self.checked_at


def observe_again(
    worker_id: int,
    before: KnownConnection | None,
    sight: ConnectionObservation | None,
    *,
    checked_at: datetime,
    answered_at: datetime,
) -> KnownConnection:
    """The database's time before and after the look. `sight` None: there was no clear answer."""
    if before is None or before.checked_at > checked_at:
        # Or the database's clock was set back. Compared with times from before that, a live run could look older than
        # the connection that began it.
        before = KnownConnection(worker_id=worker_id, checked_at=checked_at)
    look = replace(before, checked_at=checked_at)
    if sight is None or (before.connection not in sight.names and len(sight.names) != 1):
        # Kept: one answer that is missing, or that lists no consumer while the plugin restarts, must not end a run that
        # was known to be the present process's.
        look = replace(look, missing_since=before.missing_since or checked_at)
        if sight is None:
            return look
        if sight.names:
            return _shared(look, answered_at)
        # After looks that found others, an empty list does not show that the connection is alone again.
        return look if before.is_still_shared else replace(look, observed_at=checked_at)
    if len(sight.names) > 1:
        return _shared(replace(look, missing_since=None), answered_at)
    [name] = sight.names
    is_same_name = before.connection == name
    if is_same_name and not _is_younger(before, sight, checked_at):
        shared_until = answered_at if before.is_still_shared else before.shared_until
        return replace(look, observed_at=checked_at, missing_since=None, shared_until=shared_until)
    if is_same_name or before.observed_at is None or sight.age_seconds is None:
        absent_at = None
    else:
        # RabbitMQ lists a consumer up to one statistics interval late (5 s by default), and lists none for a while
        # after its management plugin was restarted. The age shows that such a look was blind.
        absent_at = min(before.observed_at, checked_at - timedelta(seconds=sight.age_seconds))
    return KnownConnection(
        worker_id=worker_id,
        checked_at=checked_at,
        observed_at=checked_at,
        connection=name,
        absent_at=absent_at,
        found_at=answered_at,
    )


def _shared(look: KnownConnection, answered_at: datetime) -> KnownConnection:
    """Others consume beside the connection, or without it. Which of them begins a run from now on is unknown, even when
    it is alone again: the one that took work beside it may be gone then. Not a look without the others, so its time
    does not count.
    """
    is_first = not look.is_still_shared
    return replace(
        look,
        # Only the last time counts. What began in an earlier one is left alone: in doubt dlq-handler waits.
        shared_from=look.observed_at if is_first else look.shared_from,
        shared_since=look.checked_at if is_first else look.shared_since,
        shared_until=answered_at,
    )


def _is_younger(before: KnownConnection, sight: ConnectionObservation, checked_at: datetime) -> bool:
    """Another connection has the name, because the worker was restarted and its old port was used again."""
    if before.found_at is None or sight.age_seconds is None:
        return False
    return checked_at - timedelta(seconds=sight.age_seconds + MARGIN_SECONDS) > before.found_at


class Began(Enum):
    """Who began a run."""

    BY_PRESENT = auto()
    """The process that consumes the worker's queue now."""
    BY_FORMER = auto()
    """A process that is gone."""
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    """What one look found out about the process of a worker, where a new connection is a new process."""

    look: KnownConnection
    """What is known after it."""
    is_found: bool = True
    """`look.connection` consumes the queue now, alone or beside others."""
    trouble: str | None = None
    """Why this look did not find it alone. None: it did."""

    @property
    def gone_before(self) -> datetime | None:
        """Runs that began before this time were begun by a process that is gone. None: unknown of any run."""
        if self.trouble is not None or self.look.absent_at is None:
            return None
        return self.look.absent_at - timedelta(seconds=MARGIN_SECONDS)

    @property
    def known_from(self) -> datetime | None:
        """Runs that began earlier were not begun by the present process, as far as is known. None: unknown of any."""
        return self.look.found_at if self.is_found else None

    def began(self, updated: datetime) -> Began:
        """`updated`: the last change of a row that is running.

        A row that was changed after the run began looks younger than the run. So a run of a former process is left
        alone if its row was changed after the restart; no live run is taken for a former process's by that.
        """
        if self.gone_before is not None and updated < self.gone_before:
            return Began.BY_FORMER
        if self.is_found and self.look.is_proven(updated):
            return Began.BY_PRESENT
        return Began.UNKNOWN

    def began_all_since(self, updated: datetime) -> bool:
        """The present process began each run whose last change was at this time or later."""
        until = self.look.shared_until
        return self.began(updated) is Began.BY_PRESENT and (until is None or updated >= until)

    @property
    def unknown_explanation(self) -> str:
        return self.trouble or "the connection that consumes its queue may have begun after this run"


def view_of(look: KnownConnection, sight: ConnectionObservation | None, trouble: str) -> ProcessView:
    """`look`: what is known after this look. `sight` None: there was no clear answer, because of `trouble`."""
    if sight is None:
        return ProcessView(look=look, is_found=False, trouble=trouble)
    is_found = look.connection in sight.names
    if len(sight.names) == 1:
        return ProcessView(look=look, is_found=is_found)
    if not sight.names:
        return ProcessView(look=look, is_found=False, trouble="its queue has no consumer")
    several = f"its queue has consumers on {len(sight.names)} connections"
    return ProcessView(look=look, is_found=is_found, trouble=several)
