"""A brake and a gate for tests: each knob has the value that keeps it out of a test about something else."""

from dlq_handler.database.engine import Database
from dlq_handler.metrics import Metrics
from dlq_handler.rooms import new_metrics
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate_service import Gate
from dlq_handler.safety.options import BrakeOptions, GateOptions


def a_brake(
    store: Database,
    *,
    limit: int = 0,
    hold_seconds: float = 600,
    batch_size: int = 500,
    replica: str = "test",
    metrics: Metrics | None = None,
) -> Brake:
    return Brake(
        store,
        BrakeOptions(max_decisions_per_minute=limit, hold_seconds=hold_seconds),
        batch_size=batch_size,
        replica=replica,
        metrics=metrics or new_metrics(),
    )


def a_gate(
    store: Database,
    *,
    unknown_percent: int = 0,
    unavailable_after_seconds: float = 90,
    metrics: Metrics | None = None,
) -> Gate:
    return Gate(
        store,
        GateOptions(unknown_percent=unknown_percent),
        unavailable_after_seconds=unavailable_after_seconds,
        metrics=metrics or new_metrics(),
    )
