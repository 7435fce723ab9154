"""The gate: can our own view be trusted? Pure.

Two kinds of sickness. A view of the wrong rows makes every decision wrong, so nothing is decided. A view that makes
heartbeats look old is only dangerous to decisions that rest on them, so those wait, and nothing else does. A clock that
jumps ahead also makes rows look old, and those never become young again: their ages count from the jump.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

LEAST_LETTERS = 20
"""Fewer say nothing: somebody may have deleted a handful of executions."""
REMEMBERED = 200

# What a slow answer and a clock that is being slewed may differ by; no heartbeat looks old over it.
JUMP_SECONDS = 5.0


class GateCause(StrEnum):
    SCHEMA = "schema"
    """The tables of dlq-handler have another version than this program, so it decides nothing and gives up the lease.

    It still publishes completion events that are in the outbox, and deletes old records.
    """
    RECOVERY = "recovery"
    """The database is a standby: its rows are of another moment, and nothing can be written."""
    UNKNOWN_EXECUTIONS = "unknown_executions"
    """Letters name executions that do not exist: probably this is the wrong database, or a restored one."""
    CLOCK_JUMP = "clock_jump"
    YOUNG_LINK = "young_link"
    """Our link, or the primary at its other end, has not been there for long enough."""

    @property
    def stops_everything(self) -> bool:
        return self in (GateCause.SCHEMA, GateCause.RECOVERY, GateCause.UNKNOWN_EXECUTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateState:
    """The state of one replica's safety gate."""

    causes: Mapping[GateCause, str]
    """What closes it, each with an explanation."""
    unknown_explanation: str | None = None
    """None: the state is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockLook:
    """What the database's clock said, and between which moments of the process clock it said so."""

    database_time: datetime
    asked_at: float
    answered_at: float


def jump_seconds(before: ClockLook, after: ClockLook) -> float:
    """By how much the database's clock went ahead (or back, below 0) of ours between two looks; 0 is no jump.

    However slow the answers were: what passed on our clock lies between two bounds, and only beyond them is a jump.
    """
    passed = (after.database_time - before.database_time).total_seconds()
    least, most = after.asked_at - before.answered_at, after.answered_at - before.asked_at
    if passed > most + JUMP_SECONDS:
        return passed - most
    if passed < least - JUMP_SECONDS:
        return passed - least
    return 0.0


def steady_after(jumped: float, look: ClockLook, *, before: datetime | None) -> datetime | None:
    """Since when ages can be counted, now that the clock has jumped by so many seconds."""
    if jumped > 0:
        return look.database_time
    # Set back again: counted from a moment that lies ahead, nothing would end until then.
    return min(before, look.database_time) if before else None


def recall(recent: Mapping[int, bool], found: Iterable[tuple[int, bool]]) -> dict[int, bool]:
    """Which executions exist, by id, the latest last. `found`: ids that were looked up, each with whether it exists.

    An id that was looked up before counts once, by its last answer.
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
    """Half is enough: of the executions of a restored database some may really be gone."""
    return 2 * existing >= remembered
