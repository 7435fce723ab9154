"""The ending transaction of dead letters, with the brake and the safety gate that a test is about."""

from collections.abc import Sequence

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.record import Entry
from dlq_handler.dead_letters.recorder import DeferringRecorder, LetterRecorder
from dlq_handler.dead_letters.reprocess import Reprocessor
from dlq_handler.endings.ender import Ender
from dlq_handler.endings.options import RecordOptions
from dlq_handler.endings.outbox_sql import OutboxEntry, OutboxLease
from dlq_handler.endings.relay import OutboxRelay
from dlq_handler.endings.writers import LiveWriter, RecordsWriter, ShadowWriter
from dlq_handler.host.worker import AvailabilityPolicy
from dlq_handler.metrics import Metrics
from dlq_handler.rooms import new_metrics
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate_service import Gate
from tests.support.builders import COMPLETIONS
from tests.support.fail_safe import a_brake, a_gate

KEPT_GROUP = "0123456789"


async def a_kept_group(store: Database, letters: int) -> None:
    """Unrelated letters, decided one after the other within the last hour, and none of them put up."""
    async with store.transaction() as tx:
        await tx.run(
            """
            INSERT INTO own.letter (key, execution_id, reason, exchange, routing_key, body, body_size, outcome,
                                    explanation, received_at, decided_at, replica, group_id)
            SELECT 'kept-' || n, n, 'rejected', '', '', '', 0, 'unrelated', '', at, at, '', :group_id
              FROM generate_series(1, :letters) AS n,
                   LATERAL (SELECT now() - interval '1 hour' + make_interval(secs => n * 1e-3) AS at) AS decided
            """,
            group_id=KEPT_GROUP,
            letters=letters,
        )
        await tx.run(
            """
            INSERT INTO own.letter_group
            VALUES (:group_id, 'unrelated', 'rejected', 'q', 'Odd', NULL, now(), now(), :letters, 0, '{}')
            """,
            group_id=KEPT_GROUP,
            letters=letters,
        )
        await tx.run("ANALYZE own.letter")


class HeldRelay(OutboxRelay):
    """Leases every entry, and keeps what it is offered."""

    def __init__(self) -> None:
        self.offered: list[OutboxEntry] = []

    def lease_for(self, _: int) -> OutboxLease:
        return OutboxLease(holder="test", seconds=60, taken_at=monotonic_seconds())

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
    return Ender(store, writer, recorder, 500)


def deferring_ender(store: Database, metrics: Metrics | None = None) -> Ender[DeadLetter, Entry]:
    options = RecordOptions(replica="test", destination=COMPLETIONS)
    recorder = DeferringRecorder(options, metrics or new_metrics(), after_deliveries=5)
    return Ender(store, RecordsWriter(), recorder, 500)


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
