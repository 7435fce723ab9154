"""What only `doctor` examines, beside the view. Values only."""

from collections.abc import Sequence
from dataclasses import dataclass

from dlq_handler.diagnosis.view import NOT_OBSERVED, OFF, Off, Unknown
from dlq_handler.topology.canary_run import CanaryRunReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFact:
    """The difference of a clock from the database's."""

    ahead_seconds: float
    error_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFacts:
    """What only `doctor` examines, beside the view."""

    warnings: Sequence[str] = ()
    """Of the settings."""
    host_schema: str
    missing_of_host: Sequence[str] | Unknown = NOT_OBSERVED
    missing_broker_rights: Sequence[str] | Unknown = NOT_OBSERVED
    clock: ClockFact | Unknown = NOT_OBSERVED
    broker_clock: ClockFact | Unknown = NOT_OBSERVED
    restarts: str | Unknown | None = NOT_OBSERVED
    """Why restarts of workers cannot be detected; None: they can."""
    reconnects: bool = False
    """Workers reconnect, by the settings: a new connection is no new process."""
    run_limit_seconds: float
    canary: CanaryRunReport | Off = OFF
