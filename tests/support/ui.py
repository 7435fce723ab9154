"""The ui listener of a test: the real application on a real database, with what was seen as the test wants it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import httpx

from dlq_handler.dashboard.site import Site
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.groups_sql import count_letters
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.record import Entry
from dlq_handler.dead_letters.records_sql import record_letters
from dlq_handler.diagnosis.check_replica import Patience
from dlq_handler.diagnosis.diagnoser import Diagnoser
from dlq_handler.diagnosis.view import View
from dlq_handler.explain.explain import Explanation
from dlq_handler.history.options import RetentionPolicy
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.lifecycle.flow_blueprint import worker_blueprint
from dlq_handler.lifecycle.options import LifecycleOptions
from dlq_handler.lifecycle.queue_reader import ReadQueues
from dlq_handler.operations.flow_operations import FlowOperations
from dlq_handler.operations.operations import Operations
from dlq_handler.safety.options import BrakeOptions
from dlq_handler.topology.consumers import Consumers
from dlq_handler.ui import UiApp, ui_app
from dlq_handler.web.listeners import Listener
from dlq_handler.web.options import UiOptions
from dlq_handler.web.users import Role, Tokens, named_token
from dlq_handler.web.world import Services, UiWorld
from tests.support.deciding import a_reprocessor
from tests.support.fail_safe import a_brake
from tests.support.views import a_view, collector_of

BRAKE = BrakeOptions(max_decisions_per_minute=500, hold_seconds=600)
OPERATE, READ = "operates-0123456789", "reads-0123456789ab"
TOKENS = Tokens(
    [
        named_token(name="ada", role=Role.OPERATE, token=OPERATE),
        named_token(name="grace", role=Role.READ, token=READ),
    ]
)


async def explain_nothing(_execution_id: int) -> Explanation | None:
    return None


async def count_nothing() -> Consumers | None:
    return None


async def read_no_queues() -> ReadQueues:
    return ReadQueues(rows=(), at=datetime.now(UTC))


LIFECYCLE = LifecycleOptions(enabled=True)


async def a_ui_world(
    store: Database,
    *,
    view: View | None = None,
    is_shadow: bool = False,
    has_looked: bool = True,
    explain: Callable[[int], Awaitable[Explanation | None]] = explain_nothing,
    count_intake: Callable[[], Awaitable[Consumers | None]] = count_nothing,
    read_queues: Callable[[], Awaitable[ReadQueues]] = read_no_queues,
    lifecycle: LifecycleOptions = LIFECYCLE,
    **fields: Any,
) -> UiWorld:
    """On this machine and without tokens, and all is well, by default."""
    seen = replace(view or a_view(), at=datetime.now(UTC))

    follower = cast("Leadership", SimpleNamespace(is_leader=False))
    impatient = Patience(opens_within_seconds=0, leads_within_seconds=0)
    diagnoser = Diagnoser(store, collector_of(seen), leadership=follower, replica="test", patience=impatient)
    if has_looked:
        await diagnoser.tick()
    reprocessor = a_reprocessor(store, brake=a_brake(store, limit=BRAKE.max_decisions_per_minute))
    usual: dict[str, Any] = {
        "brake_policy": BRAKE,
        "options": UiOptions(environment="test"),
        "retention": RetentionPolicy(
            resolved_seconds=86_400, unresolved_seconds=30 * 86_400, interval_seconds=60
        ),
        "ttl_seconds": 300.0,
        "replica": "test",
        "tokens": Tokens(),
    }
    return UiWorld(
        database=store,
        diagnoser=diagnoser,
        operating=Operations(store, None if is_shadow else reprocessor),
        flow_operations=FlowOperations(
            store, lifecycle, {"worker": worker_blueprint()}, names=WorkerQueueNames()
        ),
        services=cast(
            "Services",
            SimpleNamespace(explain=explain, count_intake=count_intake, read_queues=read_queues),
        ),
        is_shadow=is_shadow,
        **(usual | fields),
    )


@asynccontextmanager
async def asking(
    world: UiWorld, *, token: str | None = None, site: Site | None = None, **more: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the world's application, without a socket in between."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    transport = httpx.ASGITransport(app=ui_app(site or Site(world=world)))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost:8085", headers=headers, **more
    ) as client:
        yield client


@asynccontextmanager
async def listening(world: UiWorld) -> AsyncIterator[str]:
    """The same behind a real listener, for answers that go on and on: its URL. It ends when `world.stop` is set."""
    listener = Listener(host="127.0.0.1", port=0, setting="dlq_handler.ui")
    async with asyncio.TaskGroup() as group:
        group.create_task(listener.run(world.stop, UiApp(Site(world=world))))
        try:
            yield f"http://127.0.0.1:{listener.port}"
        finally:
            world.stop.set()


async def put_on_record(
    store: Database, *letters: DeadLetter, outcome: Outcome = Outcome.FAILED
) -> list[int]:
    """Their ids, in order; counted as a batch of the sidecar is."""
    entries = [Entry(letter=one, outcome=outcome, explanation="so it was decided") for one in letters]
    async with store.transaction() as tx:
        recorded = await record_letters(tx, entries, replica="test")
        await count_letters(tx, recorded, names=WorkerQueueNames())
        rows = await tx.rows("SELECT id FROM own.letter ORDER BY id DESC LIMIT :count", count=len(recorded))
    return sorted(row.id for row in rows)
