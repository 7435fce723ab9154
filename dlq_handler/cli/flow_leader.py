"""Wait until the leader has acted on a flow. With no replica running, the command takes the lease and acts itself.

Promises: the same runner as in a replica, under the same lease, so that a replica that starts meanwhile never acts at
the same time. A command that is interrupted leaves the wish on record: the next leader continues.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.dead_letters.intake import DeadLetterConsumers
from dlq_handler.dead_letters.recorder import LetterRecorder
from dlq_handler.endings.writers import LiveWriter
from dlq_handler.lifecycle import flows_sql
from dlq_handler.lifecycle.flow import Flow
from dlq_handler.operations.operations import Impossible
from dlq_handler.rooms import new_metrics
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate_service import Gate
from dlq_handler.safety.state_reader import StateReader
from dlq_handler.settings import Settings
from dlq_handler.settings.flows import flow_runner_of
from dlq_handler.settings.servers import broker_of
from dlq_handler.tasks import task_group

POLL_SECONDS = 0.2
STATE_SECONDS = 2.0

UNTOUCHED_SECONDS = 60.0
"""A leader looks at every flow every few seconds: after this time none acts on it."""


class NotActedOn(Impossible):
    """A replica holds the lease and does not act on flows."""

    def __init__(self, flow_id: str) -> None:
        super().__init__(
            f"no replica has acted on flow {flow_id!r} within {UNTOUCHED_SECONDS:.0f} s; the wish stays on record. Set "
            "dlq_handler.lifecycle.enabled to true on every replica, and read the log of the leader"
        )


class Progress:
    """The flow as it was last read, for the line that reports the waiting."""

    def __init__(self) -> None:
        self.flow: Flow | None = None

    def __str__(self) -> str:
        if self.flow is None:
            return "no record yet"
        what = (
            f"{self.flow.status}" if self.flow.step is None else f"{self.flow.status}, step {self.flow.step}"
        )
        return what if self.flow.last_error is None else f"{what}: {self.flow.last_error}"


@asynccontextmanager
async def flow_leader(settings: Settings, database: Database) -> AsyncIterator[None]:
    """While the block runs, this process leads if no replica does."""
    own, holder, stop = settings.dlq_handler, settings.new_lease_holder(), asyncio.Event()
    # A command answers no probe and no scrape: what the services report here is not read.
    metrics = new_metrics()
    gate = Gate(
        database,
        own.gate,
        unavailable_after_seconds=settings.worker_unavailable_after_seconds,
        metrics=metrics,
    )
    brake = Brake(
        database,
        own.brake,
        batch_size=own.batch.size,
        replica=settings.replica,
        metrics=metrics,
    )
    state = StateReader(database, gate=gate, brake=brake, interval_seconds=STATE_SECONDS)
    # Before the first decision: of a schema that is not its own, the command takes no lease.
    await state.tick()
    leadership = Leadership(
        database, settings.lease, holder=holder, metrics=metrics, may_lead=lambda: gate.fits_schema
    )
    address = broker_of(settings)
    async with AdminConnection(address) as link:
        runner = flow_runner_of(
            settings,
            database,
            address,
            leadership=leadership,
            gate=gate,
            writer=LiveWriter(gate, brake, relay=None),
            recorder=LetterRecorder(
                settings.record_options, metrics, gate=gate, availability=settings.availability
            ),
            consumers=DeadLetterConsumers(
                address,
                link,
                own.intake,
                own.batch,
                prefetch=settings.prefetch,
                tag=settings.new_consumer_tag(),
                is_shadow=False,
            ),
            holder=holder,
        )
        failed: Exception | None = None
        async with task_group() as services:
            for service in (state, leadership, runner):
                services.create_task(service.run(stop))
            try:
                yield
            except Exception as error:
                failed = error
            finally:
                stop.set()
        if failed is not None:
            raise failed


async def follow(
    database: Database, wish: Flow, is_done: Callable[[Flow], bool], progress: Progress
) -> Flow | None:
    """The flow when it is done; None: its record is gone. Raises `NotActedOn`."""
    began = monotonic_seconds()
    while True:
        async with database.transaction() as tx:
            flow = progress.flow = await flows_sql.read_flow(tx, wish.id)
        if flow is None or is_done(flow):
            return flow
        if flow.version == wish.version and monotonic_seconds() - began > UNTOUCHED_SECONDS:
            raise NotActedOn(wish.id)
        await asyncio.sleep(POLL_SECONDS)
