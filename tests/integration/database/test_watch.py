"""The outbox is counted less often the longer it takes to count."""

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.endings import database_watch, outbox_sql
from dlq_handler.endings.database_watch import DatabaseWatch
from dlq_handler.health import Readiness
from dlq_handler.rooms import new_metrics


async def test_a_count_that_took_long_is_used_again_for_longer(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, now, counts = new_metrics(), 1000.0, 0
    watch = DatabaseWatch(store, readiness=Readiness(), metrics=metrics)

    async def pending(_: Database) -> outbox_sql.Pending:
        nonlocal now, counts
        now, counts = now + 0.5, counts + 1
        return outbox_sql.Pending(count=1_000_000 + counts, oldest_age_seconds=1.0, unroutable=0)

    monkeypatch.setattr(outbox_sql, "pending", pending)
    monkeypatch.setattr(database_watch, "monotonic_seconds", lambda: now)
    for _ in range(11):
        await watch.tick()
        now += 5
    assert counts == 3, "one count of 0.5 s in 25 s"
    assert metrics.registry.get_sample_value("dlq_handler_outbox_pending") == 1_000_003


async def test_a_quick_count_is_made_at_every_tick(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = 0

    async def pending(_: Database) -> outbox_sql.Pending:
        nonlocal counts
        counts += 1
        return outbox_sql.Pending(count=0, oldest_age_seconds=0.0, unroutable=0)

    monkeypatch.setattr(outbox_sql, "pending", pending)
    monkeypatch.setattr(database_watch, "monotonic_seconds", lambda: 1000.0)
    watch = DatabaseWatch(store, readiness=Readiness(), metrics=new_metrics())
    for _ in range(3):
        await watch.tick()
    assert counts == 3
