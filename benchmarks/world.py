"""The stock world each contender meets: its own vhost and database, and dead letters that wait.

The letters are real ones: dispatched as Attune's executor does it, expired and dead-lettered by the broker itself in
the queue of an unavailable worker. Only the rows are made quicker than Attune makes them: triggers are off while they
are written. Every contender starts from a copy of one template, analysed and checkpointed.
"""

import asyncio
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

from aio_pika.abc import AbstractChannel
from aiormq.exceptions import ChannelNotFoundEntity

from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.outgoing import Confirmed, OutgoingMessage
from dlq_handler.broker.publisher import Publisher
from dlq_handler.database import migrate
from dlq_handler.database.engine import Database
from sandbox.attune import messages, schema, topology
from sandbox.attune.amqp import open_connection
from sandbox.attune.database import Session, bare_connection
from sandbox.clean_environment import clean_environment
from sandbox.servers import Servers
from tests.support.raw_publish import publish_bytes

ROOT = Path(__file__).resolve().parent.parent
WORKER_ID = 1
ACTION_REF = "core.remote"
CONFIG = {"host": "db-7.example", "command": "systemctl restart replica", "timeout": 60, "sudo": True}
PUBLISHED_AT_ONCE = 5_000
# Enough for the planner to go by key, as it does in any installation that has run for a while.
HISTORY = 60_000
SETTLING_SECONDS = 120
RUN_SECONDS = 180
LEAST_PER_SECOND = 100
# As it takes no part in any decision it may be short: real ones are five minutes.
TTL_MS = 1

_INHABIT = f"""
INSERT INTO pack (ref, label, version) VALUES ('core', 'Core', '1.0.0');
INSERT INTO action (ref, pack, pack_ref, label, entrypoint)
SELECT '{ACTION_REF}', id, ref, 'remote', 'remote' FROM pack;
INSERT INTO worker (id, name, worker_type, worker_role, last_heartbeat)
VALUES ({WORKER_ID}, 'unavailable-worker', 'local', 'action', now() - interval '1 hour');
INSERT INTO execution (action, action_ref, config, worker, status, result, created, updated)
SELECT action.id, action.ref, '{{}}', {WORKER_ID}, 'completed',
       jsonb_build_object('exit_code', 0, 'stdout', md5(CAST(n AS text)), 'duration_ms', n % 1000),
       now() - make_interval(secs => n), now() - make_interval(secs => n)
  FROM action, generate_series(1, {HISTORY}) AS n;
"""

# Beyond every limit, as dead letters are when they arrive.
OLD_SECONDS = 600.0

# Each row has a stamp of its own, so that every letter is guarded by its own microsecond.
_SCHEDULE = """
INSERT INTO execution (action, action_ref, config, worker, status, created, updated)
SELECT action.id, action.ref, $2, $3, 'scheduled', moment, moment
  FROM action, generate_series(1, $1) AS n,
       LATERAL (SELECT now() - make_interval(secs => $4) + n * interval '1 microsecond' AS moment) AS stamp
RETURNING id, updated
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What one contender gets: `letters` of them wait in the intake queue, their rows are scheduled."""

    amqp_url: str
    database_url: str
    letters: int
    folder: Path
    management_url: str | None = None
    """None: the contender works without the management API."""

    def environment(self, **more: str) -> dict[str, str]:
        """For a process of its own: our defaults, whatever the caller's shell says of Attune."""
        return clean_environment(
            {
                "PYTHONPATH": str(ROOT),
                "ATTUNE__MESSAGE_QUEUE__URL": self.amqp_url,
                "ATTUNE__DATABASE__URL": self.database_url,
                "ATTUNE__DLQ_HANDLER__HTTP__HOST": "127.0.0.1",
                "ATTUNE__DLQ_HANDLER__HTTP__PORT": "0",
                "ATTUNE__DLQ_HANDLER__UI__PORT": "0",
                # At work, with its cost, but never in the way of so many letters that are meant to end.
                "ATTUNE__DLQ_HANDLER__BRAKE__MAX_DECISIONS_PER_MINUTE": "10000000",
                # A canary that expires after the sidecar has ended would count as a dead letter that was left over.
                "ATTUNE__DLQ_HANDLER__CANARY__ENABLED": "false",
                **(
                    {"ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL": self.management_url}
                    if self.management_url
                    else {}
                ),
                **more,
            }
        )

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        async with bare_connection(self.database_url) as session:
            await session.execute("SET search_path TO attune, public")
            yield session

    @property
    def run_seconds(self) -> float:
        """A run that takes longer has failed."""
        return max(RUN_SECONDS, self.letters / LEAST_PER_SECOND)

    async def ready(self, queue: str) -> int:
        return await topology.ready_count(self.amqp_url, queue)

    async def exists(self, queue: str) -> bool:
        try:
            await self.ready(queue)
        except ChannelNotFoundEntity:
            return False
        return True


class World:
    def __init__(self, servers: Servers, template: str, folder: Path) -> None:
        self.servers = servers
        self.template = template
        self.folder = folder

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator["World"]:
        with tempfile.TemporaryDirectory(prefix="dlq-handler-bench-") as folder:
            async with Servers.find() as servers:
                template = _fresh_name()
                url = await servers.postgresql.create_database(template)
                try:
                    await _furnish(url)
                    yield cls(servers, template, Path(folder))
                finally:
                    await servers.postgresql.drop_database(template)

    @asynccontextmanager
    async def stage(self, letters: int, *, in_front: Sequence[bytes] = ()) -> AsyncIterator[Stage]:
        """`in_front`: bodies of dead letters that wait before all others."""
        async with self._empty_stage(letters) as stage:
            await _let_die(stage, in_front)
            yield stage

    @asynccontextmanager
    async def worker_queue_stage(self, messages: int) -> AsyncIterator[Stage]:
        """As many messages wait in the queue of a worker that has stopped, and none has expired."""
        async with self._empty_stage(messages) as stage:
            await _let_wait(stage)
            yield stage

    @asynccontextmanager
    async def _empty_stage(self, letters: int) -> AsyncIterator[Stage]:
        name = _fresh_name()
        folder = self.folder / name
        folder.mkdir()
        try:
            stage = Stage(
                amqp_url=await self.servers.rabbitmq.create_vhost(name),
                database_url=await self.servers.postgresql.create_database(name, self.template),
                letters=letters,
                folder=folder,
            )
            yield stage
        finally:
            await self.servers.rabbitmq.delete_vhost(name)
            await self.servers.postgresql.drop_database(name)

    async def versions(self) -> Mapping[str, str]:
        overview = (await self.servers.rabbitmq.ask("GET", "overview")).json()
        async with self.servers.postgresql.session() as session:
            postgresql = await session.fetchval("SHOW server_version")
            durable = await session.fetchval(
                "SELECT current_setting('fsync') || current_setting('synchronous_commit')"
            )
        return {
            "RabbitMQ": overview["rabbitmq_version"],
            "PostgreSQL": f"{postgresql.split()[0]} ({'durable' if durable == 'onon' else 'NOT durable'})",
        }


async def _furnish(url: str) -> None:
    await schema.install(url)
    database = Database(url)
    try:
        await migrate.upgrade(database)
    finally:
        await database.dispose()
    async with bare_connection(url) as session:
        await session.execute("SET search_path TO attune, public")
        await session.execute("SET session_replication_role = replica")
        await session.execute(_INHABIT)


async def _let_die(stage: Stage, in_front: Sequence[bytes]) -> None:
    """Schedule executions and have their messages expire: the intake queue then holds them all."""
    connection = await open_connection(stage.amqp_url)
    async with connection, stage.session() as session:
        channel = await connection.channel()
        await topology.declare_common(channel)
        await topology.declare_executor(channel)
        await topology.declare_worker(channel, WORKER_ID, TTL_MS)
        # What stock Attune lacks and the sidecar adds; the naive handler gets it for nothing.
        intake = await channel.get_queue(topology.DLX_QUEUE)
        await intake.bind(topology.DLX, topology.dispatch_key(WORKER_ID))
        await _put_in_front(await connection.channel(publisher_confirms=False), in_front)
        await _dispatch(stage, session, age_seconds=OLD_SECONDS)
        await _settle(stage, session, topology.DLX_QUEUE, stage.letters + len(in_front))


async def _let_wait(stage: Stage) -> None:
    """Schedule executions and leave their messages in the queue of a worker that has stopped in order."""
    connection = await open_connection(stage.amqp_url)
    async with connection, stage.session() as session:
        channel = await connection.channel()
        await topology.declare_common(channel)
        await topology.declare_executor(channel)
        await topology.declare_worker(channel, WORKER_ID)
        await session.execute("UPDATE worker SET status = 'inactive' WHERE id = $1", WORKER_ID)
        # Young: else the timeout monitor ends them while they are drained.
        await _dispatch(stage, session, age_seconds=0.0)
        await _settle(stage, session, topology.worker_queue(WORKER_ID), stage.letters)


async def _dispatch(stage: Stage, session: Session, *, age_seconds: float) -> None:
    await session.execute("SET session_replication_role = replica")
    rows = await session.fetch(_SCHEDULE, stage.letters, CONFIG, WORKER_ID, age_seconds)
    await _publish(stage.amqp_url, _dispatches((row["id"], row["updated"]) for row in rows))


async def _settle(stage: Stage, session: Session, queue: str, wanted: int) -> None:
    async with asyncio.timeout(SETTLING_SECONDS):
        while await stage.ready(queue) < wanted:  # noqa: ASYNC110 (the broker has no event for it)
            await asyncio.sleep(0.1)
    await session.execute("VACUUM (ANALYZE) execution")
    await session.execute("CHECKPOINT")


async def _put_in_front(channel: AbstractChannel, bodies: Sequence[bytes]) -> None:
    underlay = await channel.get_underlay_channel()
    for body in bodies:
        await publish_bytes(
            underlay,
            topology.DLX,
            routing_key=topology.dispatch_key(WORKER_ID).encode(),
            properties=b"\0\0",
            body=body,
        )
        # An answer to this means that the broker has taken the body before it.
        async with asyncio.timeout(SETTLING_SECONDS):
            await underlay.queue_declare(topology.DLX_QUEUE, passive=True)


async def _publish(amqp_url: str, dispatches: Iterator[OutgoingMessage]) -> None:
    publisher = Publisher(BrokerAddress(urls=[amqp_url]), publish_timeout_seconds=SETTLING_SECONDS)
    try:
        while some := list(islice(dispatches, PUBLISHED_AT_ONCE)):
            lost = [
                outcome for outcome in await publisher.publish(some) if not isinstance(outcome, Confirmed)
            ]
            if lost:
                raise RuntimeError(f"{len(lost)} dispatches were not taken, the first: {lost[0].text}")
    finally:
        await publisher.close()


def _dispatches(rows: Iterator[tuple[int, datetime]]) -> Iterator[OutgoingMessage]:
    for execution_id, updated in rows:
        message = messages.dispatch(
            execution_id=execution_id,
            worker_id=WORKER_ID,
            action_ref=ACTION_REF,
            scheduled_at=updated,
            config=CONFIG,
        )
        # The same properties as the reference executor sets; its own publisher takes a write for each message.
        yield OutgoingMessage(
            message_id=message.message_id,
            correlation_id=message.correlation_id,
            exchange=message.exchange,
            routing_key=message.routing_key,
            body=message.body,
        )


def _fresh_name() -> str:
    return f"bench_{uuid.uuid4().hex[:12]}"
