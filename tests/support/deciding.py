"""The letter decide of a test: real statements, with the brake and the gate that the test is about."""

from collections.abc import Callable, Sequence
from typing import Any

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.commit import DecisionPolicy, LetterDecider
from dlq_handler.endings.outbox_sql import OutboxEntry
from dlq_handler.host.worker import AvailabilityPolicy, WorkerQueueNames
from dlq_handler.metric_labels import new_metrics
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate_service import Gate
from tests.support.fail_safe import a_brake, a_gate


def a_decide(
    store: Database,
    *,
    brake: Brake | None = None,
    gate: Gate | None = None,
    unavailable_after_seconds: float = 90,
    offer: Callable[[Sequence[OutboxEntry], float], None] | None = None,
    **policy: Any,
) -> LetterDecider:
    """With `offer`, completion events are leased, and those that an error keeps from the caller go to it."""
    fields: dict[str, Any] = {
        "replica": "test",
        "lease_holder": "test",
        "exchange": "attune.executions",
        "routing_key": "execution.completed",
        "lease_seconds": 60,
        "availability": AvailabilityPolicy(unavailable_after_seconds=unavailable_after_seconds),
        "names": WorkerQueueNames(),
    }
    return LetterDecider(
        store,
        DecisionPolicy(**(fields | policy)),
        brake=brake or a_brake(store),
        gate=gate or a_gate(store, unavailable_after_seconds=unavailable_after_seconds),
        metrics=new_metrics(),
        may_lease=lambda _: offer is not None,
        offer=offer or (lambda _, __: None),
    )
