"""`executions explain`: the whole story of one execution, for whoever is woken by it."""

from datetime import datetime
from typing import Any

import pytest

from sandbox.attune.scheduler import Scheduler
from sandbox.servers import RabbitMQ
from tests.support.eventually import eventually
from tests.support.journey import World
from tests.support.least_rights import USER, as_user, least_rights
from tests.support.sidecar import sidecar_process

RESCUED = ["created", "moved", "dispatched", "died", "decided", "changed", "announced"]


def kinds(story: dict[str, Any]) -> list[str]:
    return [moment["kind"] for moment in story["moments"]]


async def test_story_of_a_rescued_execution_goes_from_its_request_to_its_notice(world: World) -> None:
    worker = await world.vanished_worker()
    async with sidecar_process(world.folder, world.amqp_url, world.database_url) as sidecar:
        [dispatch] = await world.executor.schedule_many(1, worker.id)
        await world.all_ended([dispatch])
        number = str(dispatch.execution_id)

        async def announced() -> dict[str, Any]:
            story: dict[str, Any] = await sidecar.cli_json("executions", "explain", number)
            return story if kinds(story)[-1] == "announced" else {}

        story = await eventually(announced)
        assert kinds(story) == RESCUED
        assert story["execution"]["status"] == "failed"
        assert story["waiting"] is None
        decided = story["moments"][RESCUED.index("decided")]
        assert decided["by"] == "sidecar-1"
        assert decided["evidence"]["status"] == "scheduled"
        times = [datetime.fromisoformat(moment["at"]) for moment in story["moments"]]
        assert times == sorted(times)

        code, out, _ = await sidecar.cli("executions", "explain", number)
        assert code == 0
        head, _, *lines = out.splitlines()
        assert head.startswith(f"execution {number}, core.echo: failed on worker {worker.id} ")
        assert head.endswith(" ago")
        assert all(" ago  " in line or line.startswith(" " * 20) for line in lines)
        assert f"worker.{worker.id}.executions: expired" in out
        assert "[sidecar-1]" in out


@pytest.mark.usefixtures("admission_works")
async def test_open_execution_says_why_it_waits_and_until_when(world: World) -> None:
    worker = await world.vanished_worker(ttl_ms=600_000)
    await world.executor.ensure_action("core.limited", concurrency_limit=1)
    first, second = [await world.executor.create_execution("core.limited") for _ in range(2)]
    assert await world.executor.admit(first)
    assert not await world.executor.admit(second)
    async with sidecar_process(world.folder, world.amqp_url, world.database_url) as sidecar:
        [dispatch] = await world.executor.schedule_many(1, worker.id)
        scheduled = await sidecar.cli_json("executions", "explain", str(dispatch.execution_id))
        assert kinds(scheduled) == ["created", "moved", "dispatched"]
        assert "may still be in the worker's queue" in scheduled["waiting"]["why"]
        # The queue's own TTL, which is longer than what the settings say, and the grace.
        assert scheduled["waiting"]["evidence"]["horizon_seconds"] == 630
        assert scheduled["waiting"]["until"] > scheduled["now"]

        in_line = await sidecar.cli_json("executions", "explain", str(second))
        assert "in the line of its action" in in_line["waiting"]["why"]
        _, out, _ = await sidecar.cli("executions", "explain", str(first))
        assert "its request may still be with the scheduler" in out
        assert "until 2" in out

        await sidecar.terminate()
        _, out, _ = await sidecar.cli("executions", "explain", str(dispatch.execution_id))
        waits = out[out.index("Still open: ") :].splitlines()
        assert waits[0].startswith("Still open: no sidecar leads (nobody has the lease): nobody looks for it")
        assert waits[1] == "  its message may still be in the worker's queue"
        assert waits[2].startswith("  until 2")
        assert "watched_seconds" not in out
        assert "looks=" not in out
        assert max(map(len, waits)) <= 120


async def test_a_request_that_the_scheduler_rejected_is_not_said_to_be_with_the_scheduler(
    world: World,
) -> None:
    await world.vanished_worker()
    async with (
        # To it every heartbeat is too old: it has no worker, gives the execution back and rejects the request.
        Scheduler(world.amqp_url, world.database_url, heartbeat_fresh_seconds=-1),
        sidecar_process(
            world.folder, world.amqp_url, world.database_url, intake__queue="attune.dlx.sidecar.queue"
        ) as sidecar,
    ):
        number = await world.executor.create_execution()
        await world.executor.request(number)
        await eventually(lambda: sidecar.events("dead_letter.decided"), timeout=60)
        _, out, _ = await sidecar.cli("executions", "explain", str(number))
        assert "the scheduler rejected its request at 2" in out
        assert "may still be with the scheduler" not in out
        assert "until 2" in out


async def test_unknown_number_is_an_error_that_names_the_retention(world: World) -> None:
    async with sidecar_process(world.folder, world.amqp_url, world.database_url) as sidecar:
        code, out, error = await sidecar.cli("executions", "explain", "987654321")
        assert (code, out) == (1, "")
        assert error.startswith("No such record. Records are kept for 24 h; it may have been deleted.")
        assert "dead letters wait in the queue" in error
        for mistyped in ("0", "abc"):
            code, _, error = await sidecar.cli("executions", "explain", mistyped)
            assert code == 2
            assert "Invalid value for 'ID'" in error


async def test_without_the_history_and_the_broker_it_tells_what_is_left(
    world: World, rabbitmq: RabbitMQ
) -> None:
    worker = await world.vanished_worker()
    async with (
        sidecar_process(
            world.folder, as_user(world.amqp_url), as_user(world.database_url), start=False
        ) as sidecar,
        least_rights(world, rabbitmq, sidecar),
    ):
        await world.sql(f"REVOKE SELECT ON execution_history FROM {USER}")
        await sidecar.start()
        [dispatch] = await world.executor.schedule_many(1, worker.id)
        await world.all_ended([dispatch])
        number = str(dispatch.execution_id)
        story = await sidecar.cli_json("executions", "explain", number)
        assert not story["has_history"]
        assert kinds(story)[:5] == ["created", "dispatched", "died", "decided", "changed"]
        _, out, _ = await sidecar.cli("executions", "explain", number)
        assert "history cannot be read" in out
        await world.sql("UPDATE execution SET status = 'running' WHERE id = $1", dispatch.execution_id)
        # By its age, not by how long the commands before took.
        await world.sql("UPDATE worker SET last_heartbeat = now() WHERE id = $1", worker.id)
        running = await sidecar.cli_json("executions", "explain", number)
        assert running["waiting"]["why"].startswith(f"it runs; worker {worker.id} reported ")


async def test_row_that_is_gone_leaves_its_records(world: World) -> None:
    worker = await world.vanished_worker()
    async with sidecar_process(world.folder, world.amqp_url, world.database_url) as sidecar:
        [dispatch] = await world.executor.schedule_many(1, worker.id)
        await world.all_ended([dispatch])
        await world.sql("DELETE FROM execution WHERE id = $1", dispatch.execution_id)
        _, out, _ = await sidecar.cli("executions", "explain", str(dispatch.execution_id))
        assert "no such execution any more" in out
        assert "letter 1: failed" in out
