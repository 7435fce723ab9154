"""What the ending transaction may read, change and publish: chosen once, in app.py.

`LiveWriter` does the work. `ShadowWriter` (shadow mode, a dry run) reads what the other would lock, and changes and
publishes nothing. `RecordsWriter` writes tables of dlq-handler only, whatever the brake and the safety gate say.
`EventWriter` also publishes: for subjects that end nothing, so that no brake stops them.
"""

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.lease_sql import database_time
from dlq_handler.database.transaction import Transaction
from dlq_handler.endings import outbox_sql
from dlq_handler.endings.outbox_sql import OutboxEntry
from dlq_handler.endings.relay import OutboxRelay
from dlq_handler.host import executions_sql
from dlq_handler.host.executions_sql import LockedView, end_executions
from dlq_handler.host.messages import Ending, ExecutionMessage
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate_service import Gate


class Writer(Protocol):
    """One method for each step of the transaction in ender.py, in its order."""

    keeps_counts: bool
    """Whether `Batch.count` is called."""

    async def rehearse(self, tx: Transaction) -> None:
        """Change nothing, with every right that is needed. Raises `GateClosed` or `Braked` while nothing is ended."""

    def check(self) -> None:
        """By the last read, which is seconds old. Raises `GateClosed` or `Braked` while nothing may be taken."""

    async def room(self, tx: Transaction) -> int | None:
        """How many executions may be ended; None: any number. Raises `GateClosed` or `Braked`."""

    async def executions(self, tx: Transaction, ids: Collection[int]) -> LockedView: ...

    async def end(self, tx: Transaction, endings: Sequence[Ending]) -> AbstractSet[int]:
        """Returns the executions that were ended, or would have been."""

    async def publish(self, tx: Transaction, messages: Sequence[ExecutionMessage]) -> Sequence[OutboxEntry]:
        """Write them into the outbox. Returns those that this replica has the lease of."""

    async def finish(self, tx: Transaction, *, ended: int, left_out: int) -> None: ...

    def offer(self, entries: Sequence[OutboxEntry]) -> None:
        """The transaction is committed: publish these now."""


class LiveWriter:
    keeps_counts = True

    def __init__(self, gate: Gate, brake: Brake, relay: OutboxRelay | None) -> None:
        """Without a relay (one command) messages wait in the outbox for a running replica."""
        self._gate, self._brake, self._relay = gate, brake, relay

    async def rehearse(self, tx: Transaction) -> None:
        self._gate.check()
        await executions_sql.rehearse(tx)
        await outbox_sql.rehearse(tx)
        await self._brake.check_now(tx)

    def check(self) -> None:
        self._gate.check()
        self._brake.check()

    async def room(self, tx: Transaction) -> int | None:
        self._gate.check()
        return await self._brake.room(tx)

    async def executions(self, tx: Transaction, ids: Collection[int]) -> LockedView:
        asked_at = monotonic_seconds()
        view = await executions_sql.lock_executions(tx, ids)
        self._gate.see_clock(view.now, asked_at=asked_at, answered_at=monotonic_seconds())
        # Another batch may have closed it meanwhile.
        self._gate.check()
        return view

    async def end(self, tx: Transaction, endings: Sequence[Ending]) -> AbstractSet[int]:
        return await end_executions(tx, endings)

    async def publish(self, tx: Transaction, messages: Sequence[ExecutionMessage]) -> Sequence[OutboxEntry]:
        if not messages:
            return ()
        lease = self._relay.lease_for(len(messages)) if self._relay is not None else None
        return await outbox_sql.add_to_outbox(tx, messages, lease=lease)

    async def finish(self, tx: Transaction, *, ended: int, left_out: int) -> None:
        await self._brake.note(tx, ended, left_out)

    def offer(self, entries: Sequence[OutboxEntry]) -> None:
        if self._relay is not None:
            self._relay.offer(entries)


class RecordsWriter:
    keeps_counts = True

    async def rehearse(self, tx: Transaction) -> None:
        """It needs no right on the host's tables."""

    def check(self) -> None:
        """It ends nothing."""

    async def room(self, _: Transaction) -> int | None:
        return None

    async def executions(self, tx: Transaction, _: Collection[int]) -> LockedView:
        now = await database_time(tx)
        return LockedView(executions={}, locked_elsewhere=frozenset(), unfamiliar={}, now=now)

    async def end(self, _: Transaction, __: Sequence[Ending]) -> AbstractSet[int]:
        return frozenset()

    async def publish(self, _: Transaction, __: Sequence[ExecutionMessage]) -> Sequence[OutboxEntry]:
        return ()

    async def finish(self, _: Transaction, *, ended: int, left_out: int) -> None:
        """Nothing was ended."""

    def offer(self, entries: Sequence[OutboxEntry]) -> None:
        """Nothing is published."""


class EventWriter(RecordsWriter):
    async def publish(self, tx: Transaction, messages: Sequence[ExecutionMessage]) -> Sequence[OutboxEntry]:
        """Without a lease, as it is not urgent: the relay finds them at its next poll."""
        return await outbox_sql.add_to_outbox(tx, messages)


class ShadowWriter(RecordsWriter):
    # Copies of dead letters are not counted.
    keeps_counts = False

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def rehearse(self, tx: Transaction) -> None:
        self._gate.check()
        await executions_sql.rehearse(tx, is_shadow=True)

    def check(self) -> None:
        self._gate.check()

    async def room(self, _: Transaction) -> int | None:
        """It ends nothing, so no brake stops it."""
        self._gate.check()
        return None

    async def executions(self, tx: Transaction, ids: Collection[int]) -> LockedView:
        asked_at = monotonic_seconds()
        view = await executions_sql.read_executions(tx, ids)
        self._gate.see_clock(view.now, asked_at=asked_at, answered_at=monotonic_seconds())
        self._gate.check()
        return view

    async def end(self, _: Transaction, endings: Sequence[Ending]) -> AbstractSet[int]:
        return {ending.execution.id for ending in endings}
