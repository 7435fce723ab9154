"""An independent witness: which notices really went out, and what the rows really say.

It believes nobody: a queue of its own collects the notices, its own SQL reads the rows. The queue is durable
and read only when asked, so a broker restart in the middle of a test costs it no notice.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from dlq_handler.sandbox.attune import topology
from dlq_handler.sandbox.attune.amqp import BULK_SECONDS, RPC_SECONDS, open_connection
from dlq_handler.sandbox.attune.database import Session
from dlq_handler.sandbox.attune.messages import SeenNotice, read_notice
from dlq_handler.sandbox.attune.service import AttuneService

TERMINAL = ("completed", "failed", "cancelled", "timeout", "abandoned")

# The queue removes itself when nobody has looked for an hour.
_UNUSED_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalRow:
    """What may never change again."""

    id: int
    status: str
    updated: datetime
    result_md5: str | None


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
        rows = await self.database.session.fetch(
            """SELECT id, status, updated, md5(result::text) AS result_md5
                 FROM execution WHERE status::text = ANY($1::text[])""",
            list(TERMINAL),
        )
        return {row["id"]: TerminalRow(**row) for row in rows}

    async def changed_terminal_rows(self, before: Mapping[int, TerminalRow]) -> list[int]:
        """Executions that were terminal in the snapshot and are no longer exactly so."""
        after = await self.terminal_rows()
        return [row_id for row_id, row in before.items() if after.get(row_id) != row]

    async def history(self, execution_id: int) -> list[HistoryRow]:
        rows = await self.database.session.fetch(
            """SELECT operation, changed_fields, old_values, new_values
                 FROM execution_history WHERE entity_id = $1 ORDER BY id""",
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


async def read_line(session: Session, action_ref: str) -> list[tuple[int, str]]:
    """(execution id, 'active' or 'queued') of an action, in order of the line."""
    rows = await session.fetch(
        """SELECT entry.execution_id, entry.status
             FROM execution_admission_entry AS entry
             JOIN execution_admission_state AS state ON state.id = entry.state_id
             JOIN action ON action.id = state.action_id
            WHERE action.ref = $1 ORDER BY entry.queue_order""",
        action_ref,
    )
    return [(row["execution_id"], row["status"]) for row in rows]


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
