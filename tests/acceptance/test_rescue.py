"""What the product exists for: dispatches to unavailable workers end, with one completion event, and are on record."""

from datetime import datetime
from functools import partial
from typing import Any

import pytest

from sandbox.attune import topology
from sandbox.attune.completion_listener import CompletionListener
from tests.support.eventually import eventually
from tests.support.ops_files import alerts, metrics_in, panel_queries
from tests.support.sidecar import SidecarProcess
from tests.support.stock_world import StockWorld

COUNT = 20
COUNTED = {
    'dlq_handler_dead_letters_total{outcome="failed",reason="expired"}': COUNT,
    "dlq_handler_decision_latency_seconds_count": COUNT,
    'dlq_handler_completion_events_total{outcome="confirmed"}': COUNT,
    "dlq_handler_completion_event_latency_seconds_count": COUNT,
}
RESCUED = ["created", "moved", "dispatched", "dead_lettered", "decided", "changed", "published"]


async def test_executions_of_an_unavailable_worker_are_failed_recorded_and_their_completion_published(
    world: StockWorld,
) -> None:
    worker = await world.lost_worker()
    action_id = await world.executor.ensure_action("core.echo")
    async with world.sidecar(log__level="debug") as sidecar:
        first_scrape = await sidecar.metrics()
        names = {sample.partition("{")[0] for sample in first_scrape}
        used = metrics_in(*(alert.expr for alert in alerts()), *panel_queries())
        # `up` is Prometheus's own, the others are the broker's.
        assert {name for name in used if not name.startswith("rabbitmq_")} - {"up"} <= names

        dispatched = await world.executor.schedule_many(COUNT, worker.id, config={"password": "hunter2"})
        await world.all_ended(dispatched)
        for sample, value in COUNTED.items():
            await eventually(partial(shows, sidecar, sample, value))
        # Prometheus's increase() does not see a series that is born with a value: its alert would not fire.
        assert (await sidecar.metrics()).keys() == first_scrape.keys()

        first = dispatched[0]
        result = await world.auditor.result(first.execution_id)
        assert result["error"] == "Worker queue TTL expired"
        assert result["message"]
        assert result["expired_at"] == result["died_at"]
        assert result["queue"] == topology.worker_queue(worker.id)
        assert (result["failed_by"], result["reason"]) == ("dlq_handler", "expired")
        assert (result["worker_id"], result["attempt"]) == (worker.id, first.scheduled_at.isoformat())

        [event] = [one for one in await world.auditor.completions() if one.execution_id == first.execution_id]
        assert event.correlation_id == first.message.correlation_id
        assert event.payload["completed_at"].endswith("Z")
        assert {name: event.payload[name] for name in ("action_id", "action_ref", "status", "result")} == {
            "action_id": action_id, "action_ref": "core.echo", "status": "Failed", "result": result,
        }  # fmt: skip

        history = await world.auditor.history(first.execution_id)
        assert [one.new_values and one.new_values.get("status") for one in history].count("failed") == 1
        assert ("execution.failed", "failure") in await world.auditor.audit_trail(first.execution_id)

        letters = await sidecar.cli_json("letters", "list", "--outcome", "failed", "--limit", "100")
        assert {letter["message_id"] for letter in letters} == {one.message.message_id for one in dispatched}
        assert {(letter["queue"], letter["reason"]) for letter in letters} == {
            (topology.worker_queue(worker.id), "expired")
        }
        await story_is_complete(world, sidecar, first.execution_id)
        await topology.verify_redeclare(world.amqp_url, {worker.id: 500})
        assert await sidecar.terminate() == 0
    for url in (world.amqp_url, world.database_url):
        password = url.split("://")[1].split("@")[0].partition(":")[2]
        assert password not in sidecar.log_text()
    assert "hunter2" not in sidecar.log_text()


async def shows(sidecar: SidecarProcess, sample: str, value: float) -> bool:
    return (await sidecar.metrics())[sample] == value


async def story_is_complete(world: StockWorld, sidecar: SidecarProcess, execution_id: int) -> None:
    """`executions explain`, also after the host has deleted the row."""

    async def published() -> dict[str, Any]:
        story: dict[str, Any] = await sidecar.cli_json("executions", "explain", str(execution_id))
        return story if story["moments"][-1]["kind"] == "published" else {}

    story = await eventually(published)
    assert [moment["kind"] for moment in story["moments"]] == RESCUED
    assert (story["execution"]["status"], story["waiting"]) == ("failed", None)
    decided = story["moments"][RESCUED.index("decided")]
    assert (decided["by"], decided["evidence"]["status"]) == ("sidecar-1", "scheduled")
    times = [datetime.fromisoformat(moment["at"]) for moment in story["moments"]]
    assert times == sorted(times)

    await world.sql("DELETE FROM execution WHERE id = $1", execution_id)
    story = await sidecar.cli_json("executions", "explain", str(execution_id))
    assert story["execution"] is None
    assert "decided" in [moment["kind"] for moment in story["moments"]]


@pytest.mark.usefixtures("admission_works")
async def test_a_worker_that_registers_later_is_covered_and_its_freed_slot_admits_the_next(
    world: StockWorld,
) -> None:
    await world.executor.ensure_action("core.slow", concurrency_limit=1)
    first = await world.executor.create_execution("core.slow")
    second = await world.executor.create_execution("core.slow")
    assert await world.executor.admit(first)
    assert not await world.executor.admit(second)
    async with (
        CompletionListener(world.amqp_url, world.database_url) as listener,
        world.sidecar() as sidecar,
    ):
        worker = await world.lost_worker("late")
        await eventually(partial(shows, sidecar, "dlq_handler_bound_workers", 1))
        await world.executor.schedule(first, worker.id)
        await eventually(lambda: listener.promoted == [second])


async def test_two_replicas_share_the_dead_letters_and_publish_each_completion_once(
    world: StockWorld,
) -> None:
    worker = await world.lost_worker()
    async with world.sidecar("one", batch__size="10") as one, world.sidecar("two", batch__size="10") as two:
        dispatched = await world.executor.schedule_many(400, worker.id)
        await world.all_ended(dispatched)
        name = 'dlq_handler_dead_letters_total{outcome="failed",reason="expired"}'
        shares = [(await replica.metrics())[name] for replica in (one, two)]
        assert sum(shares) == 400
        assert min(shares) > 0
