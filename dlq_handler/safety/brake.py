"""The brake (circuit breaker): may more executions be ended now, and how many? Pure.

A mass failure is more often a mistake of dlq-handler, or an outage seen from one side, than the end of thousands of
executions at once. So beyond a limit dlq-handler stops, and an operator decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from dlq_handler.safety.options import BrakeOptions

WINDOW_SECONDS = 60

# With room for fewer batches than this, transactions ask for room one after the other.
TURNS_BELOW_BATCHES = 4


class BrakeMode(StrEnum):
    OFF = "off"
    """No limit is set."""
    NORMAL = "normal"
    RELEASED = "released"
    """An operator released the brake: no limit for a while."""
    HOLDING = "holding"
    """Tripped: nothing is ended."""
    LIMITED = "limited"
    """Tripped, and the hold is over: executions are ended at the limit's rate until an operator releases it."""

    @property
    def is_tripped(self) -> bool:
        return self in (BrakeMode.HOLDING, BrakeMode.LIMITED)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrakeState:
    """The one row that all replicas share."""

    tripped_at: datetime | None = None
    hold_until: datetime | None = None
    """None while tripped: until an operator releases it."""
    tripped_by: str | None = None
    explanation: str | None = None
    released_at: datetime | None = None
    released_until: datetime | None = None
    released_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrakeView:
    """The brake as it was read, by the database's clock."""

    state: BrakeState
    ended_last_minute: int
    """Executions that all replicas together ended in the last 60 seconds."""
    now: datetime


def mode_of(view: BrakeView, options: BrakeOptions) -> BrakeMode:
    state = view.state
    if not options.is_on:
        return BrakeMode.OFF
    if state.tripped_at is not None:
        is_over = state.hold_until is not None and state.hold_until <= view.now
        return BrakeMode.LIMITED if is_over else BrakeMode.HOLDING
    if state.released_until is not None and view.now < state.released_until:
        return BrakeMode.RELEASED
    return BrakeMode.NORMAL


def room_for(view: BrakeView, options: BrakeOptions) -> int | None:
    """How many executions may be ended; None: any number."""
    match mode_of(view, options):
        case BrakeMode.OFF | BrakeMode.RELEASED:
            return None
        case BrakeMode.HOLDING:
            return 0
        case BrakeMode.NORMAL | BrakeMode.LIMITED:
            # Transactions that asked at the same time may have exceeded the limit together: never below zero.
            return max(0, options.max_decisions_per_minute - view.ended_last_minute)


def must_take_turns(view: BrakeView, options: BrakeOptions, *, batch_size: int) -> bool:
    """Whether a transaction must wait for all others that end executions before it asks for room.

    In limited mode always: then the limit is exact. Before the brake trips only while there is little room: until
    then transactions that ask at the same time may each exceed the limit by one batch.
    """
    mode, room = mode_of(view, options), room_for(view, options)
    if room is None or mode is BrakeMode.HOLDING:
        return False
    return room < TURNS_BELOW_BATCHES * batch_size or mode is BrakeMode.LIMITED


def why_tripped(view: BrakeView, options: BrakeOptions, *, changed: int, left_out: int) -> str:
    limit = options.max_decisions_per_minute
    exceeded = view.ended_last_minute - limit
    return (
        f"{view.ended_last_minute} executions ended in {WINDOW_SECONDS} s, {changed} of them in one transaction, where "
        f"{left_out} more were to be ended; the limit is {limit}"
        + (f", and batches that ran at the same time exceeded it by {exceeded}" if exceeded > 0 else "")
    )


def in_words(view: BrakeView, options: BrakeOptions) -> str | None:
    """The state as a sentence; None: nothing is limited."""
    state = view.state
    match mode_of(view, options):
        case BrakeMode.OFF | BrakeMode.NORMAL:
            return None
        case BrakeMode.RELEASED:
            return f"released by {state.released_by}: no limit until {_moment(state.released_until)}"
        case BrakeMode.HOLDING:
            return (
                f"tripped by {state.tripped_by} at {_moment(state.tripped_at)}: {state.explanation}; nothing is ended "
                f"{way_out(view, options)}"
            )
        case BrakeMode.LIMITED:
            return (
                f"tripped by {state.tripped_by} at {_moment(state.tripped_at)}: {state.explanation}; at most "
                f"{options.max_decisions_per_minute} are ended in a minute {way_out(view, options)}"
            )


def way_out(view: BrakeView, options: BrakeOptions) -> str:
    """When a tripped brake changes its mode."""
    hold_until = view.state.hold_until
    if hold_until is not None and mode_of(view, options) is BrakeMode.HOLDING:
        return f"until {_moment(hold_until)} or `dlq-handler brake release`"
    return "until `dlq-handler brake release`"


def split_by_room(wanted: Sequence[tuple[int | None, bool]], room: int | None) -> tuple[list[int], list[int]]:
    """The positions that fit, and those left out, both in order. `wanted`: the execution of each decision, and whether
    the decision ends it. `room` None: no limit.

    With an end that is left out go all later decisions about its execution: they were made as if it had ended.
    """
    if room is None:
        return list(range(len(wanted))), []
    fitting: list[int] = []
    left_out: list[int] = []
    barred: set[int | None] = set()
    for position, (execution_id, takes_room) in enumerate(wanted):
        if takes_room and room <= 0:
            barred.add(execution_id)
        if execution_id in barred:
            left_out.append(position)
            continue
        room -= takes_room
        fitting.append(position)
    return fitting, left_out


def _moment(when: datetime | None) -> str:
    return "an unknown time" if when is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
