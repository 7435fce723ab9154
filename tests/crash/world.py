"""A stock Attune with one worker that is gone, dead letters of its executions, and the ledger of what must be true.

Letters are buried straight in the dead-letter exchange, persistent and confirmed, because RabbitMQ's own
dead-lettering is at most once: a broker killed between expiry and routing loses a letter that no sidecar ever
saw. Where the way of an expired message matters, tests let it expire.
"""

import asyncio
import contextlib
import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import aio_pika
from aiormq.exceptions import AMQPError

from sandbox.attune import topology
from sandbox.attune.amqp import Publisher, PublishFailed, open_connection
from sandbox.attune.executor import Dispatch, StockExecutor, mark_scheduled
from sandbox.attune.messages import StockMessage
from sandbox.attune.worker import StockWorker
from tests.support.auditor import Auditor
from tests.support.eventually import eventually
from tests.support.ledger_of_counts import COUNTS, assert_counted
from tests.support.sidecar import SidecarProcess, sidecar_process

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
PATIENT: dict[str, Any] = {"database__lock_timeout_ms": "60000", "database__statement_timeout_ms": "90000"}


class World:
    def __init__(self, vhost: str, database: str, folder: Path, auditor: Auditor, worker_id: int) -> None:
        self.vhost, self.database = vhost, database
        self.auditor, self.worker_id = auditor, worker_id
        self._folder = folder

    @property
    def vhost_name(self) -> str:
        return unquote(urlsplit(self.vhost).path.removeprefix("/"))

    @asynccontextmanager
    async def sidecar(
        self,
        name: str = "sidecar-1",
        *,
        vhost: str | None = None,
        database: str | None = None,
        start: bool = True,
        **environment: str,
    ) -> AsyncIterator[SidecarProcess]:
        """A replica; `vhost` and `database` lead it over a proxy. Keywords are settings."""
        async with sidecar_process(
            self._folder,
            vhost or self.vhost,
            database or self.database,
            name=name,
            start=start,
            **QUICK | environment,
        ) as process:
            try:
                yield process
            except BaseException:
                # pytest shows it with the failure.
                print(f"--- the end of {name}'s log\n{process.log_text()[-8000:]}")
                raise

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
        async with _link(self.vhost) as connection:
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

    async def bury(self, dispatches: Iterable[Dispatch]) -> None:
        """Each as a dead letter, until the broker has confirmed it, through whatever becomes of the broker."""
        await self._send(replace(dispatch.message, exchange=topology.DLX) for dispatch in dispatches)

    async def a_buried(self, count: int) -> list[Dispatch]:
        dispatches = await self.schedule(count)
        await self.bury(dispatches)
        return dispatches

    async def let_expire(self, count: int) -> list[Dispatch]:
        """Real dispatches, to the queue of the worker that is gone."""
        dispatches = await self.schedule(count)
        await self.dispatch(dispatches)
        return dispatches

    async def dispatch(self, dispatches: Iterable[Dispatch]) -> None:
        """To the queue of the worker that is gone, where each expires."""
        await self._send(dispatch.message for dispatch in dispatches)

    async def _send(self, messages: Iterable[StockMessage]) -> None:
        waiting = deque(messages)
        while waiting:
            try:
                async with _link(self.vhost) as connection:
                    publisher = Publisher(connection)
                    while waiting:
                        await publisher.publish(waiting[0])
                        waiting.popleft()
            except (PublishFailed, AMQPError, OSError, RuntimeError):
                await asyncio.sleep(0.05)  # a load has a pace, also while its broker is away

    async def letters_ready(self) -> int:
        return await topology.ready_count(self.vhost, topology.DLX_QUEUE)

    async def consumers(self) -> int:
        async with _link(self.vhost) as connection:
            channel = await connection.channel()
            declared = await channel.declare_queue(topology.DLX_QUEUE, passive=True)
            return declared.declaration_result.consumer_count or 0

    async def sql(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in await self.auditor.database.session.fetch(query, *arguments)]

    @asynccontextmanager
    async def executions_locked(self) -> AsyncIterator[None]:
        """Whoever wants to change an execution waits until the block ends; reading and locking rows goes on."""
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
        self, dispatches: Sequence[Dispatch], *, may_repeat_notices: bool = False, timeout: float = 60
    ) -> None:
        """The ledger: each execution failed once, each letter recorded once, each end announced once.

        `may_repeat_notices`: copies of a notice are allowed, with the same id. Nothing is left anywhere.
        """
        ids = {dispatch.execution_id for dispatch in dispatches}

        async def is_settled() -> bool:
            [unfinished] = await self.sql(
                "SELECT (SELECT count(*) FROM execution WHERE id = ANY ($1::bigint[]) AND status <> 'failed'), "
                "(SELECT count(*) FROM dlq_handler.outbox WHERE confirmed_at IS NULL)",
                list(ids),
            )
            assert unfinished == (0, 0), "(executions not failed, notices not confirmed)"
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
        notices = [notice for notice in await self.auditor.notices() if notice.execution_id in ids]
        message_ids = {(notice.execution_id, notice.message_id) for notice in notices}
        assert Counter(execution_id for execution_id, _ in message_ids) == Counter(ids)
        if not may_repeat_notices:
            assert len(notices) == len(ids)


async def is_unready(sidecar: SidecarProcess) -> bool:
    status, _ = await sidecar.readyz()
    return status == 503


def complaints(sidecar: SidecarProcess) -> list[dict[str, Any]]:
    """Log lines of level warning and above."""
    lines = (json.loads(line) for line in sidecar.log_text().splitlines() if line.startswith("{"))
    return [line for line in lines if line["level"] not in {"debug", "info"}]


@asynccontextmanager
async def a_world(vhost: str, database: str, folder: Path) -> AsyncIterator[World]:
    async with StockExecutor(vhost, database):
        pass  # it declares, and is not needed again
    async with Auditor(vhost, database) as auditor:
        worker = StockWorker(vhost, database, name="gone", ttl_ms=50)
        await worker.start()
        await worker.vanish()
        world = World(vhost, database, folder, auditor, worker.id)
        # As a sidecar of an earlier day left it: letters must not be lost because today's has not looked yet.
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
