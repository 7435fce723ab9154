"""The safety gate: is what dlq-handler reads from the database reliable? Pure.

Some causes make every decision wrong (the wrong rows), so nothing is decided. Others only make heartbeats seem old, so
only decisions that depend on heartbeats wait. A clock that jumps ahead also makes rows seem old for ever: their ages
count from the jump.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

LEAST_LETTERS = 20
"""Fewer prove nothing: a handful of executions may have been deleted."""
REMEMBERED = 200

# A slow answer or a slewed clock may differ by this much; it makes no heartbeat seem old.
JUMP_SECONDS = 5.0


class GateCause(StrEnum):
    SCHEMA = "schema"
    """The tables of dlq-handler have another version than this program, so it decides nothing and gives up the lease.

    It still publishes completion events that are in the outbox, and deletes old records.
    """
    RECOVERY = "recovery"
    """The database is a standby: its rows are of another moment, and nothing can be written."""
    UNKNOWN_EXECUTIONS = "unknown_executions"
    """Dead letters name executions that do not exist: probably the wrong database, or a restored one."""
    CLOCK_JUMP = "clock_jump"
    YOUNG_LINK = "young_link"
    """The connection, or the primary behind it, is younger than the availability limit."""

    @property
    def stops_everything(self) -> bool:
        return self in (GateCause.SCHEMA, GateCause.RECOVERY, GateCause.UNKNOWN_EXECUTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateState:
    """The state of one replica's safety gate."""

    causes: Mapping[GateCause, str]
    """What closes it, each with an explanation."""
    closed_at: Mapping[GateCause, datetime] = field(default_factory=dict)
    """By the database's clock; a cause that is left out: unknown."""
    unknown_explanation: str | None = None
    """None: the state is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """The database's time, and the process clock before and after the question."""

    database_time: datetime
    asked_at: float
    answered_at: float


def jump_seconds(before: ClockReading, after: ClockReading) -> float:
    """By how much the database's clock jumped ahead (back: below 0) of the process clock between two reads; 0: no jump.

    Slow answers are no jump: the time that passed on the process clock lies between two bounds.
    """
    passed = (after.database_time - before.database_time).total_seconds()
    least, most = after.asked_at - before.answered_at, after.answered_at - before.asked_at
    if passed > most + JUMP_SECONDS:
        return passed - most
    if passed < least - JUMP_SECONDS:
        return passed - least
    return 0.0


def steady_after(jumped: float, reading: ClockReading, *, before: datetime | None) -> datetime | None:
    """The moment from which ages count after the clock has jumped by this many seconds."""
    if jumped > 0:
        return reading.database_time
    # The clock was set back: counted from a moment in the future, nothing would end until then.
    return min(before, reading.database_time) if before else None


def recall(recent: Mapping[int, bool], found: Iterable[tuple[int, bool]]) -> dict[int, bool]:
    """Which executions exist, by id, the latest last. `found`: ids that were read, each with whether it exists.

    An id that was read before counts once, by its last answer.
    """
    witnesses = dict(recent)
    for execution_id, exists in found:
        witnesses.pop(execution_id, None)
        witnesses[execution_id] = exists
    return witnesses


def latest(witnesses: Mapping[int, bool]) -> dict[int, bool]:
    return dict(list(witnesses.items())[-REMEMBERED:])


def unknown_among(witnesses: Mapping[int, bool]) -> list[int]:
    return [number for number, exists in witnesses.items() if not exists]


def is_wrong_database(witnesses: Mapping[int, bool], *, unknown_percent: int) -> bool:
    if unknown_percent == 0 or len(witnesses) < LEAST_LETTERS:
        return False
    return len(unknown_among(witnesses)) * 100 >= unknown_percent * len(witnesses)


def is_right_again(remembered: int, existing: int) -> bool:
    """Half is enough: a restored database may lack some executions."""
    return 2 * existing >= remembered
