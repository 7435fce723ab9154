"""Dispatches with a body beyond the limit: decided by the beginning of the body, and without an id there unreadable."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.attune import messages
from sandbox.attune.executor import Dispatch
from tests.crash.world import CrashWorld, a_world
from tests.support.eventually import eventually

# Small, so that a large body is quickly sent; beyond the first 64 KiB, which are kept.
LIMIT = 2048
LARGE = {"text": "x" * 200_000}


@pytest.fixture
async def world(vhost: str, database: str, tmp_path: Path) -> AsyncIterator[CrashWorld]:
    async with a_world(vhost, database, tmp_path) as one:
        yield one


async def test_a_large_dispatch_fails_its_execution_by_the_time_of_its_death(world: CrashWorld) -> None:
    large, headless, touched, small = await world.schedule(4)
    late_id = replace(headless, message=replace(headless.message, body=config_first(headless.message.body)))
    # Without the trigger, which would set another time.
    async with world.auditor.database.transaction() as session:
        await session.execute("SET LOCAL session_replication_role = replica")
        await session.execute(
            "UPDATE execution SET updated = now() + interval '1 hour' WHERE id = $1", touched.execution_id
        )
    await world.dispatch([with_config(large), late_id, with_config(touched), small])

    async with world.sidecar(intake__max_body_bytes=str(LIMIT)):
        outcomes = await eventually(lambda: four_outcomes(world), timeout=60)

    assert outcomes[large.execution_id] == ("failed", None)
    assert outcomes[small.execution_id] == ("failed", small.scheduled_at)
    assert outcomes[touched.execution_id] == ("stale_attempt", None)
    [(outcome, explanation, size)] = await world.sql(
        "SELECT outcome, explanation, body_size FROM dlq_handler.letter WHERE execution_id IS NULL"
    )
    assert outcome == "unreadable"
    assert explanation.startswith("body too large, and no execution_id at its beginning: ")
    assert size == len(late_id.message.body)
    assert await world.auditor.status(large.execution_id) == "failed"
    assert await world.auditor.status(headless.execution_id) == "scheduled"
    assert await world.auditor.status(touched.execution_id) == "scheduled"


def config_first(body: bytes) -> bytes:
    """The same dispatch with its id out of reach, behind the config."""
    envelope = json.loads(body)
    envelope["payload"] = {"config": LARGE} | envelope["payload"] | {"config": LARGE}
    return json.dumps(envelope).encode()


def with_config(dispatch: Dispatch) -> Dispatch:
    message = messages.dispatch(
        execution_id=dispatch.execution_id,
        worker_id=dispatch.worker_id,
        action_ref="core.echo",
        scheduled_at=dispatch.scheduled_at,
        config=LARGE,
    )
    return replace(dispatch, message=message)


async def four_outcomes(world: CrashWorld) -> dict[int | None, tuple[str, object]]:
    """Outcome and stamp by execution, when all four are on record."""
    rows = await world.sql("SELECT execution_id, outcome, attempt_updated_at FROM dlq_handler.letter")
    assert len(rows) == 4
    return {execution_id: (outcome, attempt_updated_at) for execution_id, outcome, attempt_updated_at in rows}
