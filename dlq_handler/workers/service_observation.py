"""Observations of the queues that the host's services must consume: which has no consumer, since when, and why. Pure.

Attune's services do not reconnect to RabbitMQ. After a restart of the broker they go on running without consumers, and
workers go on sending heartbeats. One check proves nothing: a worker that starts sends its first heartbeat before it
consumes, and one that stops leaves its queue before its heartbeat is old. So a worker counts after two different
heartbeats that are both later than the first check without a consumer. An older one may come from a process that still
consumed: with the heartbeat of its successor, which prepares its environments before it consumes, that would make two.
What the checks found is kept in the database, where commands and new leaders read it.

Times are by the database's clock. A restart of the broker is reported only if a check with a consumer came before it,
and none after it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

# Older observations prove nothing about now: their replica has ended, or the broker did not answer. In a large fleet
# there is a check every two minutes.
CURRENT_FOR = timedelta(minutes=3)

# After a longer break the observation begins again: a consumer may have started and stopped in between.
LONGEST_BREAK = timedelta(minutes=5)

# The management API's uptime is some seconds old, so the start that follows from it is as much too late.
UPTIME_ERROR = timedelta(seconds=15)

# The management API starts after the broker, and has no statistics at first.
START_KNOWN_WITHIN = timedelta(minutes=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceObservation:
    """What the checks so far have found about one queue. With a consumer and an active worker, all times are None."""

    queue: str
    unconsumed_since: datetime | None = None
    """The first check without a consumer."""
    consumed_at: datetime | None = None
    """The last check with a consumer before that; None: no check ever found one."""
    restarted_at: datetime | None = None
    """When the broker started, if that was between those two checks; None: not known."""
    connection_lost_at: datetime | None = None
    """When dlq-handler's own connection to the broker broke, if that was between those two checks."""
    first_heartbeat: datetime | None = None
    """The first heartbeat of the worker that is later than `unconsumed_since`."""
    inactive_heartbeat: datetime | None = None
    """The first heartbeat of the worker that was seen while the host had it as inactive."""

    @property
    def is_eventful(self) -> bool:
        return self.unconsumed_since is not None or self.inactive_heartbeat is not None

    def may_learn_start(self, now: datetime) -> bool:
        """The broker's start, if it were known, could still explain why there is no consumer."""
        return (
            self.unconsumed_since is not None
            and self.consumed_at is not None
            and self.restarted_at is None
            and now - self.unconsumed_since <= START_KNOWN_WITHIN
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceObservations:
    """The observations of the leaders, by queue; those without events are left out."""

    observed_at: datetime | None
    """The time of the last check; None: there was none."""
    by_queue: Mapping[str, ServiceObservation]

    def are_current(self, now: datetime) -> bool:
        return self.observed_at is not None and now - self.observed_at <= CURRENT_FOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporting:
    """A worker whose heartbeat is fresh."""

    last_heartbeat: datetime
    is_inactive: bool
    """The host has it as inactive, and gives it no work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRun:
    """What is known of the broker's last start."""

    started_at: datetime | None = None
    """By the management API; None: unknown."""
    connection_lost_at: datetime | None = None
    """When dlq-handler's own connection last broke; None: it did not."""


def observe_again(
    before: ServiceObservation | None,
    *,
    queue: str,
    consumers: int,
    reporting: Reporting | None,
    broker: BrokerRun,
    last_checked_at: datetime | None,
    now: datetime,
) -> ServiceObservation:
    """`reporting` None: not a worker's queue, or its worker does not report.

    `last_checked_at`: the last check of all queues.
    """
    if before is not None and (last_checked_at is None or now - last_checked_at > LONGEST_BREAK):
        # A consumer found before the break did exist; a missing one may have started and stopped since.
        before = None if before.is_eventful else before
    observation = (
        _unconsumed(before, queue, broker, last_checked_at, now)
        if consumers == 0
        else ServiceObservation(queue=queue)
    )
    if reporting is None:
        return replace(observation, first_heartbeat=None)
    if reporting.is_inactive:
        first = before.inactive_heartbeat if before else None
        # A worker that stops is set inactive first: what follows it under this name counts from its own heartbeats.
        return replace(
            observation, first_heartbeat=None, inactive_heartbeat=first or reporting.last_heartbeat
        )
    if (
        observation.first_heartbeat is None
        and observation.unconsumed_since
        and reporting.last_heartbeat > observation.unconsumed_since
    ):
        return replace(observation, first_heartbeat=reporting.last_heartbeat)
    return observation


def _unconsumed(
    before: ServiceObservation | None,
    queue: str,
    broker: BrokerRun,
    last_checked_at: datetime | None,
    now: datetime,
) -> ServiceObservation:
    if before is not None and before.unconsumed_since is not None:
        observation = replace(before, inactive_heartbeat=None)
    else:
        consumed_at = None if before is None else last_checked_at
        observation = ServiceObservation(queue=queue, unconsumed_since=now, consumed_at=consumed_at)
        if consumed_at and broker.connection_lost_at and consumed_at <= broker.connection_lost_at <= now:
            observation = replace(observation, connection_lost_at=broker.connection_lost_at)
    if (
        observation.may_learn_start(now)
        and broker.started_at
        and observation.consumed_at
        and observation.unconsumed_since
    ):
        is_between = (
            observation.consumed_at < broker.started_at <= observation.unconsumed_since + UPTIME_ERROR
        )
        return replace(observation, restarted_at=broker.started_at) if is_between else observation
    return observation


def same_start(started_at: datetime, observations: Iterable[ServiceObservation]) -> datetime:
    """As it is on record already: computed again from a newer uptime, one start would become two."""
    known = [one.restarted_at for one in observations if one.restarted_at]
    return next((at for at in known if abs(at - started_at) <= UPTIME_ERROR), started_at)


def has_reported_twice(first: datetime | None, last_heartbeat: datetime | None) -> bool:
    """Two different heartbeats were seen."""
    return first is not None and last_heartbeat is not None and last_heartbeat != first
