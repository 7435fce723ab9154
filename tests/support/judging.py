"""The letter judge of a test: real statements, with the brake and the gate that the test is about."""

from collections.abc import Callable, Sequence
from typing import Any

from dlq_handler.domain.worker import AvailabilityPolicy, WorkerQueueNames
from dlq_handler.services.brake import Brake
from dlq_handler.services.gate import Gate
from dlq_handler.services.judge_letters import JudgePolicy, LetterJudge
from dlq_handler.services.observer import Observer
from dlq_handler.store.engine import Database
from dlq_handler.store.outbox import OutboxEntry
from tests.support.fail_safe import a_brake, a_gate


def a_judge(
    store: Database,
    *,
    brake: Brake | None = None,
    gate: Gate | None = None,
    unavailable_after_seconds: float = 90,
    offer: Callable[[Sequence[OutboxEntry], float], None] | None = None,
    **policy: Any,
) -> LetterJudge:
    """With `offer`, completion events are leased, and those that an error keeps from the caller go to it."""
    fields: dict[str, Any] = {
        "instance": "test",
        "lease_holder": "test",
        "exchange": "attune.executions",
        "routing_key": "execution.completed",
        "lease_seconds": 60,
        "availability": AvailabilityPolicy(unavailable_after_seconds=unavailable_after_seconds),
        "names": WorkerQueueNames(),
    }
    return LetterJudge(
        store,
        JudgePolicy(**(fields | policy)),
        brake=brake or a_brake(store),
        gate=gate or a_gate(store, unavailable_after_seconds=unavailable_after_seconds),
        observer=Observer(),
        may_lease=lambda _: offer is not None,
        offer=offer or (lambda _, __: None),
    )
