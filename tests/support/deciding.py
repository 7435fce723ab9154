"""The ending transaction of dead letters, with the brake and the safety gate that a test is about."""

from collections.abc import Sequence

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.record import Entry
from dlq_handler.dead_letters.recorder import DeferringRecorder, LetterRecorder
from dlq_handler.dead_letters.reprocess import Reprocessor
from dlq_handler.endings.batch_size import BatchSize
from dlq_handler.endings.ender import Ender
from dlq_handler.endings.outbox_sql import Lease, OutboxEntry
from dlq_handler.endings.record_options import RecordOptions
from dlq_handler.endings.relay import OutboxRelay
from dlq_handler.endings.writers import LiveWriter, RecordsWriter, ShadowWriter
from dlq_handler.host.worker import AvailabilityPolicy
from dlq_handler.metrics import Metrics
from dlq_handler.rooms import new_metrics
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate_service import Gate
from tests.support.builders import COMPLETIONS
from tests.support.fail_safe import a_brake, a_gate


class HeldRelay(OutboxRelay):
    """Leases every entry, and keeps what it is offered."""

    def __init__(self) -> None:
        self.offered: list[OutboxEntry] = []

    def lease_for(self, _: int) -> Lease:
        return Lease(holder="test", seconds=60, taken_at=monotonic_seconds())

    def offer(self, entries: Sequence[OutboxEntry]) -> None:
        self.offered.extend(entries)


def letter_recorder(
    gate: Gate,
    *,
    metrics: Metrics | None = None,
    replica: str = "test",
    is_shadow: bool = False,
    unavailable_after_seconds: float = 90,
) -> LetterRecorder:
    return LetterRecorder(
        RecordOptions(replica=replica, destination=COMPLETIONS, is_shadow=is_shadow),
        metrics or new_metrics(),
        gate=gate,
        availability=AvailabilityPolicy(unavailable_after_seconds=unavailable_after_seconds),
    )


def letter_ender(
    store: Database,
    *,
    brake: Brake | None = None,
    gate: Gate | None = None,
    relay: OutboxRelay | None = None,
    recorder: LetterRecorder | None = None,
    replica: str = "test",
    unavailable_after_seconds: float = 90,
    is_shadow: bool = False,
) -> Ender[DeadLetter, Entry]:
    gate = gate or a_gate(store, unavailable_after_seconds=unavailable_after_seconds)
    recorder = recorder or letter_recorder(
        gate, replica=replica, is_shadow=is_shadow, unavailable_after_seconds=unavailable_after_seconds
    )
    writer = ShadowWriter(gate) if is_shadow else LiveWriter(gate, brake or a_brake(store), relay)
    return Ender(store, writer, recorder, batch_size(store))


def deferring_ender(store: Database, metrics: Metrics | None = None) -> Ender[DeadLetter, Entry]:
    options = RecordOptions(replica="test", destination=COMPLETIONS)
    recorder = DeferringRecorder(options, metrics or new_metrics(), after_deliveries=5)
    return Ender(store, RecordsWriter(), recorder, batch_size(store))


def a_reprocessor(
    store: Database,
    *,
    brake: Brake | None = None,
    gate: Gate | None = None,
    metrics: Metrics | None = None,
    unavailable_after_seconds: float = 90,
) -> Reprocessor:
    gate = gate or a_gate(store, unavailable_after_seconds=unavailable_after_seconds)
    recorder = letter_recorder(gate, metrics=metrics, unavailable_after_seconds=unavailable_after_seconds)
    return Reprocessor(store, LiveWriter(gate, brake or a_brake(store), None), recorder)


def batch_size(store: Database, most: int = 500) -> BatchSize:
    return BatchSize(most, limit_seconds=store.statement_seconds)
