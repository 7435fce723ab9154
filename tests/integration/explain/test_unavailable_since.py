"""OS7 of the operating review: every surface gives the same moment since when a worker is unavailable."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from dlq_handler.dashboard.pages.workers import worker_rows
from dlq_handler.database.engine import Database
from dlq_handler.database.lease_sql import database_time
from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.view import ObservedWorker
from dlq_handler.history import events_sql, history_sql
from dlq_handler.history.event import WORKER_UNAVAILABLE
from dlq_handler.history.recorder import HistoryRecorder
from dlq_handler.host.workers_sql import list_workers
from dlq_handler.rooms import new_metrics
from dlq_handler.workers.availability import Availability, standing_of
from dlq_handler.workers.watch import WorkerWatch
from tests.integration.explain.test_explain import EXPLAIN, explained
from tests.support.fail_safe import a_brake, a_gate
from tests.support.host_tables import Host
from tests.support.stale_world import StaleWorld
from tests.support.views import a_view

POLICY = EXPLAIN.limits.availability
HOUR = timedelta(hours=1)


async def test_status_pages_chart_and_explain_give_the_same_moment(store: Database, host: Host) -> None:
    it = StaleWorld(store, host)
    worker_id = await it.a_dead_worker()
    [execution_id] = await host.add_executions(1, status="running", worker=worker_id)
    [registered] = await list_workers(store)
    heartbeat = registered.worker.last_heartbeat
    assert heartbeat is not None
    name = registered.name
    async with store.transaction() as tx:
        now = await database_time(tx)
    before = {worker_id: heartbeat - HOUR}
    await history_sql.record_workers(store, {worker_id: (name, Availability.AVAILABLE)}, began_at=before)
    # A replica that has just started does not know it.
    await history_sql.record_workers(store, {worker_id: (name, Availability.UNKNOWN)})

    async def count(_: object) -> dict[int, Any]:
        return {}

    leader: Any = SimpleNamespace(is_leader=True)
    observer: Any = SimpleNamespace(count=count, broker_error=None)
    gate: Any = SimpleNamespace(watched_seconds=float("inf"))
    watch = WorkerWatch(
        store,
        observer,
        leader,
        gate,
        availability=POLICY,
        confirm_after_seconds=30,
        metrics=new_metrics(),
    )
    recorder = HistoryRecorder(
        store,
        replica="one",
        leadership=leader,
        gate=a_gate(store),
        brake=a_brake(store),
        consumer=None,
        decided=lambda: 0,
        worker_watch=watch,
    )
    await watch.tick()
    await recorder.tick()

    observed = ObservedWorker(
        registered=registered,
        standing=standing_of(registered.worker, watched_seconds=float("inf"), policy=POLICY),
        queue=None,
        ended_last_hour=0,
        expired_lately=0,
        was_stopped=False,
        is_on_time=False,
        observation=None,
    )
    diagnoses = {one.check: one for one in diagnose(a_view(workers=(observed,)))}
    [timeline] = await history_sql.timelines(store, since=now - HOUR, until=now + HOUR)
    [row] = worker_rows([observed], [timeline], {})
    events = [one for one in await events_sql.after(store, 0) if one.kind == WORKER_UNAVAILABLE]
    waiting = (await explained(it, execution_id)).waiting
    assert waiting is not None
    since = heartbeat + timedelta(seconds=POLICY.unavailable_after_seconds)
    assert {
        "status": diagnoses[Check.WORKERS].since,
        "page": row.since,
        "line": timeline.segments[-1].since,
        "marker": events[0].at,
        "explain": waiting.evidence["unavailable_since"],
    } == {
        "status": since,
        "page": since,
        "line": since,
        "marker": since,
        "explain": since.isoformat(),
    }
