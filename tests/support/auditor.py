"""An independent witness for tests: the completion events that were published, and what the rows say.

A queue of its own collects the events, its own SQL reads the rows. The queue is durable and read only when asked, so a
broker restart in the middle of a test costs it no event.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from sandbox.attune import topology
from sandbox.attune.amqp import BULK_SECONDS, RPC_SECONDS, open_connection
from sandbox.attune.messages import SeenCompletion, read_completion
from sandbox.attune.service import AttuneService
from sandbox.auditor.ledger import TERMINAL, TerminalRow
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
        self._seen: list[SeenCompletion] = []

    async def _begin(self, channel: AbstractChannel) -> None:
        await topology.declare_common(channel)
        declared = await channel.declare_queue(
            self.queue, durable=True, arguments={"x-expires": _UNUSED_MS}, timeout=RPC_SECONDS
        )
        await declared.bind(topology.EXECUTIONS, "execution.completed", timeout=RPC_SECONDS)

    async def waiting(self) -> int:
        """Completion events not yet collected: cheap, for benchmarks that only count."""
        return await topology.ready_count(self._amqp_url, self.queue)

    async def completions(self) -> list[SeenCompletion]:
        """Every completion event published since start(), in order of arrival."""
        # A connection of its own each time: the one of start() may have died with a broker.
        connection = await open_connection(self._amqp_url)
        async with connection, asyncio.timeout(BULK_SECONDS):
            channel = await connection.channel()
            queue = await channel.declare_queue(self.queue, passive=True, timeout=RPC_SECONDS)
            expected = queue.declaration_result.message_count or 0
            if expected:
                self._seen += await _collect(queue, expected)
        return list(self._seen)

    async def completion_counts(self) -> Counter[int]:
        """Completion events per execution."""
        return Counter(completion.execution_id for completion in await self.completions())

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


async def _collect(queue: AbstractQueue, expected: int) -> list[SeenCompletion]:
    arrived: list[AbstractIncomingMessage] = []
    complete = asyncio.Event()

    async def receive(message: AbstractIncomingMessage) -> None:
        arrived.append(message)
        if len(arrived) >= expected:
            complete.set()

    tag = await queue.consume(receive, timeout=RPC_SECONDS)
    await complete.wait()
    await arrived[expected - 1].ack(multiple=True)
    # The reply to cancel comes after the ack was handled: only now do the completion events count as seen.
    await queue.cancel(tag, timeout=RPC_SECONDS)
    return [read_completion(message.body) for message in arrived[:expected]]


# Also a change out of a terminal status: nothing may happen to an execution after its end.
_ENDS = """
SELECT entity_id, old_values ->> 'status' AS before, new_values ->> 'status' AS after
  FROM execution_history
 WHERE operation = 'UPDATE' AND entity_id = ANY ($1::bigint[])
   AND (old_values ->> 'status' = ANY ($2::text[]) OR new_values ->> 'status' = ANY ($2::text[]))
"""


async def ended_once(
    auditor: Auditor, executions: Collection[int], *, may_repeat_completions: bool = False
) -> None:
    """Each execution ended once, stayed ended, and has one completion event.

    An event may repeat, with the same id, if the database was lost between its confirmation and its mark.
    """
    changes = await auditor.database.session.fetch(_ENDS, list(executions), list(TERMINAL))
    ends = Counter(row["entity_id"] for row in changes)
    assert ends == Counter(executions)
    assert all(row["before"] not in TERMINAL for row in changes)
    completions = [
        completion for completion in await auditor.completions() if completion.execution_id in set(executions)
    ]
    ids = {(completion.execution_id, completion.message_id) for completion in completions}
    assert Counter(number for number, _ in ids) == Counter(executions)
    if not may_repeat_completions:
        assert len(completions) == len(ids)
