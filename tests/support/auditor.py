"""An independent witness for tests: the completion events that were published, and what the rows say.

A queue of its own collects the events, its own SQL reads the rows. The queue is durable and read only when asked, so a
broker restart in the middle of a test costs it no event.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from sandbox.attune import topology
from sandbox.attune.amqp import BULK_SECONDS, RPC_SECONDS, open_connection
from sandbox.attune.messages import SeenNotice, read_notice
from sandbox.attune.service import AttuneService
from sandbox.auditor.ledger import TerminalRow
from sandbox.auditor.rows import read_line, read_terminal_rows

# The queue removes itself after an hour without a reader.
_UNUSED_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    operation: str
    changed_fields: list[str]
    old_values: dict[str, Any] | None
    new_values: dict[str, Any] | None


class Auditor(AttuneService):
    def __init__(self, amqp_url: str, database_url: str, *, schema: str = "attune") -> None:
        super().__init__(amqp_url, database_url, schema=schema)
        self.queue = f"sandbox.auditor.{uuid4()}"
        self._seen: list[SeenNotice] = []

    async def _begin(self, channel: AbstractChannel) -> None:
        await topology.declare_common(channel)
        declared = await channel.declare_queue(
            self.queue, durable=True, arguments={"x-expires": _UNUSED_MS}, timeout=RPC_SECONDS
        )
        await declared.bind(topology.EXECUTIONS, "execution.completed", timeout=RPC_SECONDS)

    async def waiting(self) -> int:
        """Notices not yet collected: cheap, for benchmarks that only count."""
        return await topology.ready_count(self._amqp_url, self.queue)

    async def notices(self) -> list[SeenNotice]:
        """Every notice published since start(), in order of arrival."""
        # A connection of its own each time: the one of start() may have died with a broker.
        connection = await open_connection(self._amqp_url)
        async with connection, asyncio.timeout(BULK_SECONDS):
            channel = await connection.channel()
            queue = await channel.declare_queue(self.queue, passive=True, timeout=RPC_SECONDS)
            expected = queue.declaration_result.message_count or 0
            if expected:
                self._seen += await _collect(queue, expected)
        return list(self._seen)

    async def notice_counts(self) -> Counter[int]:
        """Notices per execution."""
        return Counter(notice.execution_id for notice in await self.notices())

    async def statuses(self) -> Counter[str]:
        """How many executions are in which status."""
        rows = await self.database.session.fetch(
            "SELECT status, count(*) AS n FROM execution GROUP BY status"
        )
        return Counter({row["status"]: row["n"] for row in rows})

    async def status(self, execution_id: int) -> str | None:
        status: str | None = await self.database.session.fetchval(
            "SELECT status FROM execution WHERE id = $1", execution_id
        )
        return status

    async def result(self, execution_id: int) -> Any:
        return await self.database.session.fetchval(
            "SELECT result FROM execution WHERE id = $1", execution_id
        )

    async def terminal_rows(self) -> dict[int, TerminalRow]:
        """A snapshot to compare with a later one: `changed_terminal_rows`."""
        return await read_terminal_rows(self.database.session)

    async def changed_terminal_rows(self, before: Mapping[int, TerminalRow]) -> list[int]:
        """Executions that were terminal in the snapshot and are no longer exactly so."""
        after = await self.terminal_rows()
        return [row_id for row_id, row in before.items() if after.get(row_id) != row]

    async def history(self, execution_id: int) -> list[HistoryRow]:
        rows = await self.database.session.fetch(
            """SELECT operation, changed_fields, old_values, new_values
                 FROM execution_history WHERE entity_id = $1 ORDER BY time, ctid""",
            execution_id,
        )
        return [HistoryRow(**row) for row in rows]

    async def audit_trail(self, execution_id: int) -> list[tuple[str, str]]:
        """(event type, outcome), oldest first."""
        rows = await self.database.session.fetch(
            """SELECT event_type, outcome FROM audit_event
                WHERE entity_type = 'execution' AND entity_id = $1 ORDER BY id""",
            execution_id,
        )
        return [(row["event_type"], row["outcome"]) for row in rows]

    async def line(self, action_ref: str) -> list[tuple[int, str]]:
        return await read_line(self.database.session, action_ref)


async def _collect(queue: AbstractQueue, expected: int) -> list[SeenNotice]:
    arrived: list[AbstractIncomingMessage] = []
    complete = asyncio.Event()

    async def receive(message: AbstractIncomingMessage) -> None:
        arrived.append(message)
        if len(arrived) >= expected:
            complete.set()

    tag = await queue.consume(receive, timeout=RPC_SECONDS)
    await complete.wait()
    await arrived[expected - 1].ack(multiple=True)
    # The reply to cancel comes after the ack was handled: only now do the notices count as seen.
    await queue.cancel(tag, timeout=RPC_SECONDS)
    return [read_notice(message.body) for message in arrived[:expected]]
