"""The relay between a real table and a real broker: until confirmed, in order, once."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.publisher import Publisher
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database import migrate
from dlq_handler.database.engine import Database
from dlq_handler.endings import outbox_sql
from dlq_handler.endings.options import OutboxOptions
from dlq_handler.endings.outbox_sql import OutboxEntry, OutboxLease, OutboxProblem
from dlq_handler.endings.relay import OutboxRelay
from dlq_handler.errors import Unavailable
from dlq_handler.host.messages import ExecutionMessage
from dlq_handler.rooms import new_metrics
from sandbox.attune.executor import StockExecutor
from tests.support.auditor import Auditor

HOLDER = "this relay"


def a_completion_event(execution_id: int, *, is_workflow_task: bool, routing_key: str) -> ExecutionMessage:
    message_id = uuid4()
    envelope = {
        "message_id": str(message_id),
        "message_type": "ExecutionCompleted",
        "timestamp": "2026-01-01T00:00:00Z",
        "payload": {"execution_id": execution_id},
    }
    return ExecutionMessage(
        message_id=str(message_id),
        correlation_id=str(uuid4()),
        exchange="attune.executions",
        routing_key=routing_key,
        execution_id=execution_id,
        is_workflow_task=is_workflow_task,
        body=json.dumps(envelope).encode(),
    )


class Fixture:
    """A relay with everything around it in hand."""

    def __init__(self, amqp_url: str, database_url: str, executor: StockExecutor, auditor: Auditor) -> None:
        self.store = Database(database_url)
        self.publisher = Publisher(BrokerAddress(urls=[amqp_url]), publish_timeout_seconds=5)
        self.executor, self.auditor, self.metrics = executor, auditor, new_metrics()
        self.relay = self.a_relay()

    def a_relay(self, **changes: Any) -> OutboxRelay:
        options: dict[str, Any] = {
            "batch_size": 100,
            "lease_seconds": 60,
            "poll_interval_seconds": 0.05,
            "max_backoff_seconds": 300,
        }
        return OutboxRelay(
            self.store,
            self.publisher,
            OutboxOptions(**(options | changes)),
            publish_timeout_seconds=5,
            holder=HOLDER,
            metrics=self.metrics,
        )

    async def write(
        self,
        *execution_ids: int,
        routing_key: str = "execution.completed",
        holder: str | None = None,
        leased_ago: float = 0.0,
        is_workflow_task: bool = False,
    ) -> list[OutboxEntry]:
        completions = [
            a_completion_event(number, is_workflow_task=is_workflow_task, routing_key=routing_key)
            for number in execution_ids
        ]
        lease = (
            OutboxLease(holder=holder, seconds=60, taken_at=monotonic_seconds() - leased_ago)
            if holder
            else None
        )
        async with self.store.transaction() as tx:
            return await outbox_sql.add_to_outbox(tx, completions, lease=lease)

    async def pending(self) -> int:
        return (await outbox_sql.pending(self.store)).count

    async def end_waits(self) -> None:
        async with self.store.transaction() as tx:
            await tx.run(
                "UPDATE own.outbox SET next_attempt_at = now(), lease_until = now() - interval '1 second'"
            )

    async def written_ago(self, seconds: float) -> None:
        """As if every entry had been written so long ago."""
        async with self.store.transaction() as tx:
            await tx.run(
                "UPDATE own.outbox SET created_at = created_at - make_interval(secs => :secs)", secs=seconds
            )

    def counted(self, outcome: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            "dlq_handler_completion_events_total", {"outcome": outcome}
        )

    async def took(self) -> list[float]:
        """By the table: from its transaction to its mark, of each confirmed entry."""
        async with self.store.transaction() as tx:
            rows = await tx.rows(
                "SELECT extract(epoch FROM confirmed_at - created_at) AS took FROM own.outbox"
            )
        return [float(row.took) for row in rows]

    def announced(self, part: str, **labels: str) -> float:
        """A sample of the histogram of announce latencies: its sum, its count, a bucket."""
        name = f"dlq_handler_completion_event_latency_seconds_{part}"
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
async def it(vhost: str, database: str) -> AsyncIterator[Fixture]:
    async with StockExecutor(vhost, database) as executor, Auditor(vhost, database) as auditor:
        fixture = Fixture(vhost, database, executor, auditor)
        await migrate.upgrade(fixture.store)
        yield fixture
        await fixture.publisher.close()
        await fixture.store.dispose()


async def test_what_a_crash_left_is_claimed_published_and_marked(it: Fixture) -> None:
    await it.write(1, 2, 3, holder="a dead replica")
    await it.relay.tick()
    assert await it.pending() == 3, "another's lease is respected while it lasts"
    await it.end_waits()
    await it.relay.tick()
    assert await it.pending() == 0
    assert sorted(await it.auditor.completion_counts()) == [1, 2, 3]


async def test_offered_entries_are_published_without_looking_at_the_table(it: Fixture) -> None:
    entries = await it.write(1, 2, holder=HOLDER)
    it.relay.offer(entries)
    await it.relay.tick()
    assert await it.pending() == 0
    assert it.counted("confirmed") == 2


async def test_entry_whose_lease_could_end_meanwhile_is_left_to_the_next_claim(it: Fixture) -> None:
    it.relay.offer(await it.write(1, holder=HOLDER, leased_ago=56))
    await it.relay.tick()
    assert await it.auditor.waiting() == 0
    assert await it.pending() == 1


async def test_unroutable_completion_event_stays_backs_off_and_is_counted(it: Fixture) -> None:
    await it.write(1, routing_key="no.consumer")
    await it.write(2)
    await it.relay.tick()
    assert await it.auditor.completion_counts() == {2: 1}
    assert await it.pending() == 1
    assert it.counted("unroutable") == 1
    await it.relay.tick()
    assert it.counted("unroutable") == 1, "not before its time"
    await it.end_waits()
    await it.relay.tick()
    assert it.counted("unroutable") == 2
    await it.write(2)
    waiting = await outbox_sql.pending(it.store)
    assert (waiting.count, waiting.unroutable) == (2, 1), "the second was not tried yet"


async def test_latency_includes_the_time_that_a_completion_event_waited_in_the_table(it: Fixture) -> None:
    """Also the time without a holder: a returned completion event waits in the table, not in memory."""
    await it.write(1, routing_key="no.consumer")
    await it.relay.tick()
    assert it.announced("count") == 0, "it is not published yet"
    await it.written_ago(4000)
    await it.end_waits()
    async with it.store.transaction() as tx:
        await tx.run("UPDATE own.outbox SET routing_key = 'execution.completed', lease_until = NULL")
    await it.relay.tick()
    assert (it.announced("count"), it.announced("bucket", le="1800.0")) == (1, 0)
    assert it.announced("bucket", le="7200.0") == 1
    [took] = await it.took()
    assert it.announced("sum") == pytest.approx(took), "what the table says"


async def test_announce_latency_of_offered_entries_counts_from_their_transaction(it: Fixture) -> None:
    entries = await it.write(1, 2, holder=HOLDER)
    await it.written_ago(4000)
    it.relay.offer(entries)
    await it.relay.tick()
    assert (it.announced("count"), it.announced("bucket", le="1800.0")) == (2, 0)
    assert it.announced("sum") == pytest.approx(sum(await it.took()))


async def test_completion_events_of_one_execution_are_published_in_order(it: Fixture) -> None:
    await it.write(1)
    await it.write(1)
    await it.relay.tick()
    first = await it.auditor.completions()
    await it.relay.tick()
    both = await it.auditor.completions()
    assert (len(first), len(both)) == (1, 2)
    async with it.store.transaction() as tx:
        ids = [str(row.message_id) for row in await tx.rows("SELECT message_id FROM own.outbox ORDER BY id")]
    assert [completion.message_id for completion in both] == ids


async def test_repeat_for_a_workflow_task_that_was_retried_is_withheld(it: Fixture) -> None:
    task = {
        "workflow_execution": 1,
        "task_name": "build",
        "task_index": None,
        "retry_count": 0,
        "max_retries": 3,
    }
    done = await it.executor.create_execution(workflow_task=task)
    await it.write(done, is_workflow_task=True, holder="a dead replica")
    again = await it.executor.create_execution(workflow_task=task | {"retry_count": 1})
    await it.executor.database.session.execute(
        "UPDATE execution SET original_execution = $1 WHERE id = $2", done, again
    )
    await it.end_waits()
    await it.relay.tick()
    assert await it.pending() == 0
    assert await it.auditor.waiting() == 0
    assert it.counted("withheld") == 1
    async with it.store.transaction() as tx:
        [entry] = await tx.rows("SELECT problem FROM own.outbox")
    assert entry.problem == OutboxProblem.WITHHELD, "the record differs from one that was confirmed"


async def test_repeated_request_is_published_whatever_the_host_has_retried(it: Fixture) -> None:
    """Only the end of a workflow task must not be published twice: a scheduler claims an execution once."""
    asked = await it.executor.create_execution(workflow_task={"task_name": "build", "retry_count": 0})
    again = await it.executor.create_execution()
    await it.executor.database.session.execute(
        "UPDATE execution SET original_execution = $1 WHERE id = $2", asked, again
    )
    await it.write(asked, routing_key="execution.requested", holder="a dead replica")
    await it.end_waits()
    await it.relay.tick()
    assert await it.pending() == 0
    assert (it.counted("confirmed"), it.counted("withheld")) == (1, 0)


async def test_first_completion_event_of_a_workflow_task_is_never_withheld(it: Fixture) -> None:
    task = {
        "workflow_execution": 1,
        "task_name": "build",
        "task_index": None,
        "retry_count": 0,
        "max_retries": 3,
    }
    done = await it.executor.create_execution(workflow_task=task)
    await it.write(done, is_workflow_task=True)
    await it.relay.tick()
    assert await it.auditor.completion_counts() == {done: 1}


async def test_confirmed_but_unmarked_completion_events_are_marked_later_and_not_published_again(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = await it.write(1, 2, holder=HOLDER)
    it.relay.offer(entries)
    real = outbox_sql.mark_confirmed

    async def away(*_: object) -> None:
        raise OSError("the database is away just now")

    monkeypatch.setattr(outbox_sql, "mark_confirmed", away)
    with pytest.raises(OSError, match="away"):
        await it.relay.tick()
    monkeypatch.setattr(outbox_sql, "mark_confirmed", real)
    assert (it.counted("confirmed"), it.announced("count")) == (2, 0), "what is not marked has no end yet"
    await it.relay.tick()
    assert await it.pending() == 0
    assert await it.auditor.completion_counts() == {1: 1, 2: 1}
    assert (it.counted("confirmed"), it.announced("count")) == (2, 2)


async def test_memory_is_bounded_when_the_broker_does_not_take_anything(it: Fixture) -> None:
    assert it.relay.lease_for(400)
    it.relay.offer(await it.write(*range(1, 301), holder=HOLDER))
    assert not it.relay.lease_for(101)


async def test_stopping_flushes_what_is_in_hand_and_lets_go_of_the_rest(it: Fixture) -> None:
    stop = asyncio.Event()
    stop.set()
    it.relay.offer(await it.write(1, 2, holder=HOLDER))
    await it.write(3, holder=HOLDER)
    async with asyncio.timeout(30):
        await it.relay.run(stop)
    assert await it.auditor.completion_counts() == {1: 1, 2: 1}
    claimed = await outbox_sql.claim_due(
        it.store, OutboxLease(holder="the next one", seconds=60, taken_at=monotonic_seconds()), limit=10
    )
    assert [entry.message.execution_id for entry in claimed] == [3]


async def test_refused_completion_event_of_a_task_is_published_although_a_retry_exists(it: Fixture) -> None:
    """No consumer received it, so the retry row has another cause."""
    done = await it.executor.create_execution(workflow_task={"task_name": "build", "retry_count": 0})
    await it.write(done, is_workflow_task=True, routing_key="no.consumer")
    again = await it.executor.create_execution()
    await it.executor.database.session.execute(
        "UPDATE execution SET original_execution = $1 WHERE id = $2", done, again
    )
    await it.relay.tick()
    await it.end_waits()
    async with it.store.transaction() as tx:
        await tx.run("UPDATE own.outbox SET routing_key = 'execution.completed', lease_until = NULL")
    await it.relay.tick()
    assert await it.auditor.completion_counts() == {done: 1}


async def test_stopping_without_a_broker_still_lets_go_of_every_lease(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise Unavailable("broker", "away")

    monkeypatch.setattr(it.publisher, "publish", away)
    stop = asyncio.Event()
    stop.set()
    it.relay.offer(await it.write(1, holder=HOLDER))
    async with asyncio.timeout(30):
        await it.relay.run(stop)
    [claimed] = await outbox_sql.claim_due(
        it.store, OutboxLease(holder="the next one", seconds=60, taken_at=monotonic_seconds()), limit=10
    )
    assert not claimed.possibly_published
