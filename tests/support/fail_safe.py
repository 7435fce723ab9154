"""A brake and a gate for tests: each knob has the value that keeps it out of a test about something else."""

from dlq_handler.domain.brake import BrakePolicy
from dlq_handler.domain.gate import GatePolicy
from dlq_handler.services.brake import Brake
from dlq_handler.services.gate import Gate
from dlq_handler.services.observer import Observer
from dlq_handler.services.readiness import Readiness
from dlq_handler.store.engine import Database


def a_brake(
    store: Database,
    *,
    limit: int = 0,
    hold_seconds: float = 600,
    batch_size: int = 500,
    instance: str = "test",
    readiness: Readiness | None = None,
    observer: Observer | None = None,
) -> Brake:
    return Brake(
        store,
        BrakePolicy(max_verdicts_per_minute=limit, hold_seconds=hold_seconds, batch_size=batch_size),
        instance=instance,
        readiness=readiness or Readiness(),
        observer=observer or Observer(),
    )


def a_gate(
    store: Database,
    *,
    unknown_percent: int = 0,
    unavailable_after_seconds: float = 90,
    readiness: Readiness | None = None,
    observer: Observer | None = None,
) -> Gate:
    return Gate(
        store,
        GatePolicy(unknown_percent=unknown_percent, unavailable_after_seconds=unavailable_after_seconds),
        readiness=readiness or Readiness(),
        observer=observer or Observer(),
    )
