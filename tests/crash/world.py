"""A stock Attune with an unavailable worker, dead letters of its executions, and the checks of what must be true.

Dead letters are published straight to the dead-letter exchange, persistent and confirmed: RabbitMQ's own
dead-lettering is at most once, and a broker killed between expiry and routing loses the message. Where the way of an
expired message matters, tests let it expire.
"""

import asyncio
import contextlib
import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import aio_pika
from aiormq.exceptions import AMQPError

from sandbox.attune import topology
from sandbox.attune.amqp import Publisher, PublishFailed, open_connection
from sandbox.attune.executor import Dispatch, StockExecutor, mark_scheduled
from sandbox.attune.messages import StockMessage
from sandbox.attune.worker import StockWorker
from tests.support.auditor import Auditor
from tests.support.eventually import eventually
from tests.support.host_tables import COUNTS, assert_counted
from tests.support.sidecar import SidecarProcess
from tests.support.world import World

SABOTAGE = str(Path(__file__).parent.parent / "support" / "sabotage.py")

# Short waits, where a crash test would otherwise sit through the default ones.
QUICK = {
    "outbox__lease_seconds": "2",
    "broker__publish_timeout_seconds": "1",
    "broker__connect_timeout_seconds": "2",
    "grace__shutdown_seconds": "5",
    # Crash tests count what waits in the intake queue, to the message; its own has the canary on.
    "canary__enabled": "false",
}

# For tests that hold a lock on purpose, and want the sidecar to wait for it.
WAIT_FOR_LOCKS: dict[str, Any] = {
    "database__lock_timeout_ms": "60000",
    "database__statement_timeout_ms": "90000",
}


@dataclass(frozen=True, kw_only=True)
class CrashWorld(World):
    worker_id: int
    """Of an unavailable worker."""
    settings: ClassVar[Mapping[str, str]] = QUICK

    async def schedule(self, count: int, *, worker_id: int | None = None) -> list[Dispatch]:
        """Executions `scheduled` on the worker, with the messages that have not been sent yet."""
        created = await self.sql(
            "INSERT INTO execution (action_ref, status) SELECT 'core.echo', 'scheduling' "
            "FROM generate_series(1, $1) RETURNING id",
            count,
        )
        return await mark_scheduled(
            self.auditor.database.session, [row[0] for row in created], worker_id or self.worker_id
        )

    async def schedule_on(self, worker_id: int) -> Dispatch:
        [dispatch] = await self.schedule(1, worker_id=worker_id)
        return dispatch

    async def publish_patiently(self, dispatch: Dispatch) -> None:
        """As a scheduler whose publish hangs: it waits for the confirm, however long that takes."""
        async with _link(self.amqp_url) as connection:
            await Publisher(connection).publish_many([dispatch.message])

    async def status(self, dispatch: Dispatch) -> str:
        [(status,)] = await self.sql(
            "SELECT status::text FROM execution WHERE id = $1", dispatch.execution_id
        )
        return str(status)

    async def has_status(self, dispatch: Dispatch, status: str) -> bool:
        return await self.status(dispatch) == status

    async def is_failed(self, dispatch: Dispatch) -> None:
        await eventually(lambda: self.has_status(dispatch, "failed"), timeout=120)

    async def is_older_than(self, dispatch: Dispatch, seconds: float) -> bool:
        [(is_so,)] = await self.sql(
            "SELECT updated < now() - make_interval(secs => $2) FROM execution WHERE id = $1",
            dispatch.execution_id,
            seconds,
        )
        return bool(is_so)

    async def age(self, dispatches: Sequence[Dispatch], seconds: float) -> None:
        """As if they had been scheduled that long ago. Without the triggers, which would overwrite `updated`."""
        numbers = ",".join(str(one.execution_id) for one in dispatches)
        await self.auditor.database.session.execute(
            "SET session_replication_role = replica;"
            f"UPDATE execution SET updated = now() - interval '{seconds} s' WHERE id IN ({numbers});"
            "SET session_replication_role = DEFAULT"
        )

    async def changes(self, dispatch: Dispatch) -> list[str]:
        """The statuses that it got after it was scheduled, in order."""
        rows = await self.sql(
            "SELECT new_values ->> 'status' FROM execution_history WHERE entity_id = $1 AND operation = 'UPDATE'"
            " AND new_values ->> 'status' IS NOT NULL ORDER BY time",
            dispatch.execution_id,
        )
        return [str(row[0]) for row in rows if row[0] != "scheduled"]

    async def dead_letter(self, dispatches: Iterable[Dispatch]) -> None:
        """Publish each as a dead letter until the broker has confirmed it, also through an outage of the broker."""
        await self._send(replace(dispatch.message, exchange=topology.DLX) for dispatch in dispatches)

    async def dead_lettered(self, count: int) -> list[Dispatch]:
        dispatches = await self.schedule(count)
        await self.dead_letter(dispatches)
        return dispatches

    async def let_expire(self, count: int) -> list[Dispatch]:
        """Real dispatches, to the queue of the unavailable worker."""
        dispatches = await self.schedule(count)
        await self.dispatch(dispatches)
        return dispatches

    async def dispatch(self, dispatches: Iterable[Dispatch]) -> None:
        """To the queue of the unavailable worker, where each expires."""
        await self._send(dispatch.message for dispatch in dispatches)

    async def _send(self, messages: Iterable[StockMessage]) -> None:
        waiting = deque(messages)
        while waiting:
            try:
                async with _link(self.amqp_url) as connection:
                    publisher = Publisher(connection)
                    while waiting:
                        await publisher.publish(waiting[0])
                        waiting.popleft()
            except (PublishFailed, AMQPError, OSError, RuntimeError):
                await asyncio.sleep(0.05)  # a load has a pace, also while its broker is away

    async def letters_ready(self) -> int:
        return await topology.ready_count(self.amqp_url, topology.DLX_QUEUE)

    async def consumers(self) -> int:
        async with _link(self.amqp_url) as connection:
            channel = await connection.channel()
            declared = await channel.declare_queue(topology.DLX_QUEUE, passive=True)
            return declared.declaration_result.consumer_count or 0

    @asynccontextmanager
    async def executions_locked(self) -> AsyncIterator[None]:
        """Changes of executions wait until the block ends; reading and locking rows goes on."""
        async with self.auditor.database.transaction() as session:
            await session.execute("LOCK TABLE execution IN SHARE MODE")
            yield

    @asynccontextmanager
    async def rows_locked(self, dispatches: Sequence[Dispatch]) -> AsyncIterator[asyncio.Event]:
        """Their dead letters are postponed until the event is set, or the block ends."""
        release, locked = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            async with self.auditor.database.transaction() as session:
                ids = [dispatch.execution_id for dispatch in dispatches]
                await session.execute("SELECT FROM execution WHERE id = ANY ($1::bigint[]) FOR UPDATE", ids)
                locked.set()
                await release.wait()

        async with asyncio.TaskGroup() as group:
            group.create_task(hold())
            await locked.wait()
            try:
                yield release
            finally:
                release.set()

    async def a_batch_waits(self) -> bool:
        return await self.batches_wait(1)

    async def batches_wait(self, count: int) -> bool:
        """The sidecar is in the middle of so many transactions, held up by `executions_locked`."""
        waiting = await self.sql(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database() "
            "AND application_name LIKE 'dlq-handler%'"
        )
        return len(waiting) >= count

    async def failed(self) -> int:
        return (await self.auditor.statuses())["failed"]

    async def settled_once(
        self, dispatches: Sequence[Dispatch], *, may_repeat_completions: bool = False, timeout: float = 60
    ) -> None:
        """Each execution failed once, each dead letter recorded once, each completion published once.

        `may_repeat_completions`: copies of a completion event are allowed, with the same id. Nothing is left anywhere.
        """
        ids = {dispatch.execution_id for dispatch in dispatches}

        async def is_settled() -> bool:
            [unfinished] = await self.sql(
                "SELECT (SELECT count(*) FROM execution WHERE id = ANY ($1::bigint[]) AND status <> 'failed'), "
                "(SELECT count(*) FROM dlq_handler.outbox WHERE confirmed_at IS NULL)",
                list(ids),
            )
            assert unfinished == (0, 0), "(executions not failed, completion events not confirmed)"
            assert await self.letters_ready() == 0
            return True

        await eventually(is_settled, timeout=timeout, every=0.1)
        changes = await self.sql(
            "SELECT entity_id, old_values ->> 'status', new_values ->> 'status' FROM execution_history "
            "WHERE operation = 'UPDATE' AND new_values ->> 'status' = 'failed' AND entity_id = ANY ($1::bigint[])",
            list(ids),
        )
        assert Counter(changes) == Counter((one, "scheduled", "failed") for one in ids)
        recorded = await self.sql(
            "SELECT message_id, outcome FROM dlq_handler.letter WHERE execution_id = ANY ($1::bigint[])",
            list(ids),
        )
        assert Counter(recorded) == Counter((one.message.message_id, "failed") for one in dispatches)
        [counts] = await self.sql(COUNTS)
        assert_counted(counts)
        completions = [
            completion for completion in await self.auditor.completions() if completion.execution_id in ids
        ]
        message_ids = {(completion.execution_id, completion.message_id) for completion in completions}
        assert Counter(execution_id for execution_id, _ in message_ids) == Counter(ids)
        if not may_repeat_completions:
            assert len(completions) == len(ids)


async def is_unready(sidecar: SidecarProcess) -> bool:
    status, _ = await sidecar.readyz()
    return status == 503


def complaints(sidecar: SidecarProcess) -> list[dict[str, Any]]:
    """Log lines of level warning and above."""
    lines = (json.loads(line) for line in sidecar.log_text().splitlines() if line.startswith("{"))
    return [line for line in lines if line["level"] not in {"debug", "info"}]


@asynccontextmanager
async def a_world(vhost: str, database: str, folder: Path) -> AsyncIterator[CrashWorld]:
    async with StockExecutor(vhost, database):
        pass  # it declares, and is not needed again
    async with Auditor(vhost, database) as auditor:
        worker = StockWorker(vhost, database, name="gone", ttl_ms=50)
        await worker.start()
        await worker.die()
        world = CrashWorld(
            amqp_url=vhost, database_url=database, folder=folder, auditor=auditor, worker_id=worker.id
        )
        # As an earlier sidecar left it: no dead letter is lost before today's sidecar has bound the worker.
        await bind_worker(vhost, worker.id)
        yield world


async def bind_worker(vhost: str, worker_id: int) -> None:
    async with _link(vhost) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(topology.DLX_QUEUE, passive=True)
        await queue.bind(topology.DLX, topology.dispatch_key(worker_id))


@asynccontextmanager
async def _link(url: str) -> AsyncIterator[aio_pika.abc.AbstractConnection]:
    connection = await open_connection(url)
    try:
        yield connection
    finally:
        with contextlib.suppress(AMQPError, OSError, RuntimeError):
            await connection.close()
