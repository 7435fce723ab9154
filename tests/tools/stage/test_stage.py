"""A stage's parts die, hang and come back by name, and its errors say where to look."""

import asyncio
import io
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox.attune.database import bare_connection
from sandbox.clean_environment import clean_environment
from sandbox.demo.attune_client import attune_client
from sandbox.demo.auditor_process import auditor
from sandbox.demo.view import View
from sandbox.demo.world import World
from sandbox.server_programs.program import output_of
from sandbox.stage.folder import FolderTaken
from sandbox.stage.part import PartFailed
from sandbox.stage.stage import Stage
from sandbox.times import SCALED
from tests.support.eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER_SETTINGS = """
dlq_handler: {schema: other, ui: {runbook_url: "http://user.example/runbook"}}
"""
STILLBORN = [sys.executable, "-c", "raise SystemExit('I was never meant to live')"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    async with Stage.open(
        folder, print_line=lambda _: None, times=SCALED, sidecar_command=STILLBORN
    ) as opened:
        await opened.start("worker-shell")
        yield opened


def no_reason(reason: str) -> None:
    raise AssertionError(f"nothing had to be said, but: {reason}")


async def worker_status(stage: Stage, name: str) -> str:
    async with bare_connection(stage.database_url) as session:
        return str(await session.fetchval("SELECT status FROM attune.worker WHERE name = $1", name))


async def test_a_worker_that_hangs_keeps_its_process_and_its_consumer(stage: Stage) -> None:
    await stage.hang("worker-shell")
    assert stage.is_running("worker-shell")
    assert stage.is_hung("worker-shell")
    before = stage.process("worker-shell")
    await stage.repair("worker-shell", print_line=no_reason)
    assert not stage.is_hung("worker-shell")
    assert stage.process("worker-shell") is before


async def test_a_worker_that_hung_until_it_was_given_up_is_started_again(stage: Stage) -> None:
    await stage.start("executor")
    await stage.hang("worker-shell")

    async def is_given_up() -> bool:
        return await worker_status(stage, "worker-shell") == "inactive"

    await eventually(is_given_up)
    reasons: list[str] = []
    await stage.repair("worker-shell", print_line=reasons.append)
    assert await worker_status(stage, "worker-shell") == "active"
    assert [reason for reason in reasons if "keeps it inactive (D10)" in reason] == reasons != []
    await stage.stop("executor")


async def test_a_worker_that_hangs_can_be_stopped(stage: Stage) -> None:
    await stage.hang("worker-shell")
    await stage.stop("worker-shell")
    assert await worker_status(stage, "worker-shell") == "inactive"
    await stage.start("worker-shell")


async def test_a_database_that_hangs_answers_no_session_that_was_open_before(stage: Stage) -> None:
    async with bare_connection(stage.database_url) as session:
        await stage.hang("database")
        asked = asyncio.ensure_future(session.fetchval("SELECT 1"))
        answered, _ = await asyncio.wait([asked], timeout=0.5)
        assert not answered
        await stage.resume("database")
        assert await asked == 1


async def test_a_part_that_fails_says_which_and_why_and_where_to_read_on(stage: Stage) -> None:
    with pytest.raises(PartFailed, match="I was never meant to live") as failed:
        await stage.start("sidecar")
    assert str(failed.value).startswith("sidecar: it ended while starting")
    assert str(stage.log("sidecar")) in str(failed.value)


async def test_a_part_that_is_down_cannot_hang(stage: Stage) -> None:
    with pytest.raises(PartFailed, match="does not run"):
        await stage.hang("worker-node")


async def test_an_unknown_part_is_an_error_that_names_the_known_ones(stage: Stage) -> None:
    with pytest.raises(ValueError, match="no part 'worker-cobol'; there are broker, database, api"):
        stage.is_running("worker-cobol")


async def test_what_lies_in_the_folder_that_a_command_is_called_in_does_not_reach_it(
    stage: Stage, tmp_path: Path
) -> None:
    for name in ("config.yaml", "config.development.yaml"):
        (tmp_path / name).write_text(USER_SETTINGS)
    client = stage.folder.state.clients["dlq-handler"]

    async def shown(*arguments: str) -> str:
        command = (*client.command, "config", "show", *arguments)
        return await output_of(*command, environment=clean_environment(client.environment), folder=tmp_path)

    said = await shown()
    assert said.startswith(f"files: {stage.folder.no_settings}\n")
    assert "config." not in said
    assert "user.example" not in said
    assert "dlq_handler.schema\tdlq_handler\tdefault" in said
    assert "dlq_handler.schema\tother\t" in await shown("--config", "config.yaml"), "what is named is read"


async def test_a_second_stage_in_the_same_folder_is_refused(stage: Stage) -> None:
    with pytest.raises(FolderTaken, match=str(stage.folder.path)):
        async with Stage.open(stage.folder.path, print_line=lambda _: None, times=SCALED):
            pass
    assert stage.is_running("broker")


async def test_demo_asks_for_work_only_when_the_api_is_healthy(stage: Stage) -> None:
    view = View(io.StringIO(), began=0)
    async with (
        attune_client(stage.api_url, stage.api_token) as client,
        auditor(stage.amqp_url, stage.database_url, stage.log("api").with_name("auditor.log")) as link,
        asyncio.TaskGroup() as group,
    ):
        world = World(stage, client, link, view, patience_seconds=30)
        group.create_task(stage.start("api"), name="start api")
        await asyncio.sleep(0)
        assert len(await world.ask_for("core.echo", 1)) == 1
