"""`./run up` and its companions, as a user runs them. Each test finds the sandbox running."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from sandbox.servers.owned_process import is_frozen
from sandbox.stage.folder import log_of
from sandbox.stage.parts import PARTS
from sandbox.stage.state import State
from tests.support.eventually import eventually

ROOT = Path(__file__).parents[3]
# Variables of a user who works with other servers: the sandbox must not use them.
ELSEWHERE = {
    "PGSSLMODE": "verify-full",
    "RABBITMQ_CTL_ERL_ARGS": "-no_such_thing",
    "ATTUNE__DLQ_HANDLER__BROKER__URLS": "amqp://127.0.0.1:1/%2f",
}


# Of the file that the sandbox is started with: what it says of servers is as little to be followed.
TOKEN = "only-for-this-test"
SETTINGS = """
message_queue: {url: "amqp://127.0.0.1:1/%2f"}
dlq_handler:
  broker: {urls: ["amqp://127.0.0.1:1/%2f"]}
  ui:
    host: 0.0.0.0
    tokens: [{name: tester, role: operate, token_file: token}]
    runbook_url: https://named.example/runbook.md
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "settings" / "try.yaml"

    def up(self) -> str:
        return self.done("up", "--config", str(self.config))

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "sandbox.stage", *arguments],
            env={**os.environ, **ELSEWHERE, "SANDBOX_FOLDER": str(self.folder)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )

    def done(self, *arguments: str) -> str:
        ran = self.run(*arguments)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    @property
    def state(self) -> State:
        state = State.read(self.folder)
        assert state
        return state

    def line_of(self, part: str) -> str:
        return next(line for line in self.done("status").splitlines() if line.startswith(f"{part} "))


def existing(*paths: str) -> list[str]:
    return [path for path in paths if Path(path).exists()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("sandbox")
    config = Sandbox(folder=path).config
    config.parent.mkdir()
    config.write_text(SETTINGS)
    config.with_name("token").write_text(TOKEN)
    yield path
    Sandbox(folder=path).done("down")


@pytest.fixture
def sandbox(folder: Path) -> Sandbox:
    found = Sandbox(folder=folder)
    found.up()
    return found


def test_up_says_where_everything_is_what_to_break_and_how_long_things_take(sandbox: Sandbox) -> None:
    again = sandbox.done("up")
    assert f"{sandbox.config}, but for addresses and times" in again
    assert again.startswith("the sandbox is already running")
    state = sandbox.state
    for name in ("api", "api_token", "amqp", "management", "database", "ops", "ui"):
        assert state.urls[name] in again
    for command in ("break worker-python", "dlq-handler doctor", "dlq-handler canary run"):
        assert f"./run {command}" in again
    assert "5 s  until a message expires in a worker's queue" in again
    assert httpx.get(f"{state.urls['ops']}/readyz", trust_env=False).status_code == 200
    assert set(state.processes) == set(PARTS)


def test_a_killed_worker_is_down_until_it_is_repaired(sandbox: Sandbox) -> None:
    before = sandbox.state.processes["worker-python"]
    assert "killed (SIGKILL)" in sandbox.done("break", "worker-python")
    assert not before.is_alive
    assert " down " in sandbox.line_of("worker-python")
    assert "is down already" in sandbox.done("break", "worker-python", "--how", "hang")
    assert "worker-python is healthy after" in sandbox.done("repair", "worker-python")
    assert sandbox.state.processes["worker-python"].is_alive


def test_a_stopped_worker_signs_off_in_good_order(sandbox: Sandbox) -> None:
    assert "stopped (SIGTERM)" in sandbox.done("break", "worker-node", "--how", "stop")
    assert "inactive" in sandbox.done("psql", "-Atc", "SELECT status FROM worker WHERE name = 'worker-node'")
    sandbox.done("repair", "worker-node")
    assert "inactive" not in sandbox.done("psql", "-Atc", "SELECT status FROM worker")


def test_a_sidecar_that_hangs_goes_on_where_it_was(sandbox: Sandbox) -> None:
    before = sandbox.state.processes["sidecar"]
    assert "frozen (SIGSTOP)" in sandbox.done("break", "sidecar", "--how", "hang")
    assert is_frozen(before.pid)
    assert " hangs, " in sandbox.line_of("sidecar")
    sandbox.done("repair", "sidecar")
    assert sandbox.state.processes["sidecar"] == before
    assert " runs, " in sandbox.line_of("sidecar")


def test_the_sidecar_and_its_commands_read_the_file_also_once_it_was_broken(sandbox: Sandbox) -> None:
    sandbox.done("break", "sidecar")
    sandbox.done("repair", "sidecar")
    api = f"{sandbox.state.urls['ui']}/api/v1/diagnosis"
    assert httpx.get(api, trust_env=False).status_code == 401
    allowed = httpx.get(api, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False)
    assert allowed.status_code == 200
    assert "dlq_handler.ui.runbook_url\thttps://named.example/runbook.md\t" in sandbox.done(
        "dlq-handler", "config", "show"
    )


def test_a_running_sandbox_is_not_taken_for_one_that_reads_another_file(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    other.touch()
    refused = sandbox.run("up", "--config", str(other))
    assert refused.returncode == 1
    assert f"it does not read {other}: `./run down`" in refused.stderr


def test_clients_reach_the_servers_of_the_sandbox_and_no_others(sandbox: Sandbox) -> None:
    assert "worker.1.executions" in sandbox.done("rabbitmq", "list_queues", "name", "messages")
    workers = json.loads(sandbox.done("dlq-handler", "workers", "list", "--output", "json"))
    assert {"worker-shell", "worker-python", "worker-node"} <= set(json.dumps(workers).split('"'))
    assert "Usage: ./run dlq-handler letters list " in sandbox.done(
        "dlq-handler", "letters", "list", "--help"
    )
    refused = sandbox.run("psql", "-c", "SELECT nonsense")
    assert refused.returncode == 1
    assert "nonsense" in refused.stderr


def test_logs_are_those_of_the_part(sandbox: Sandbox) -> None:
    assert "starts with scaled times" in sandbox.done("logs", "executor")
    assert "all parts are healthy" in sandbox.done("logs", "keeper")


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ("break worker-cobol", ["worker-cobol", "broker", "database", "worker-python"]),
        ("break broker --how gently", ["gently", "kill", "stop", "hang"]),
        ("repair", ["required: part"]),
        ("up --cured D99", ["D99: no such defect; known are D1"]),
        ("up --config /no/such.yaml", ["/no/such.yaml cannot be read (No such file", "wanted a YAML file"]),
    ],
)
def test_a_typing_mistake_is_refused_and_changes_nothing(
    tmp_path: Path, mistake: str, words: list[str]
) -> None:
    mistaken = Sandbox(folder=tmp_path).run(*mistake.split())
    assert mistaken.returncode == 64
    assert all(word in mistaken.stderr for word in words)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["status", "break broker", "repair broker", "psql", "logs api"])
def test_without_a_sandbox_a_command_says_how_to_start_one(tmp_path: Path, command: str) -> None:
    asked = Sandbox(folder=tmp_path).run(*command.split())
    assert asked.returncode == 1
    assert "./run up" in asked.stderr


async def test_a_killed_keeper_leaves_nothing_running_and_the_next_up_clears_the_rest(
    sandbox: Sandbox,
) -> None:
    sandbox.done("break", "database")  # so that no process is left to remove its folder
    left = sandbox.state
    os.kill(left.keeper.pid, signal.SIGKILL)
    await eventually(lambda: not any(mark.is_alive for mark in left.processes.values()))
    remains = existing(*left.folders)
    assert any("postgresql" in folder for folder in remains)
    # Two at once: one starts it, the other waits for that one.
    said = await asyncio.gather(*(asyncio.to_thread(sandbox.up) for _ in range(2)))
    assert any(f"clearing what a killed run (process {left.keeper.pid}) left" in text for text in said)
    assert not existing(*remains)
    assert set(sandbox.state.processes) == set(PARTS)
    assert all(sandbox.state.urls["api"] in text for text in said)


def test_down_ends_everything_and_once_more_is_no_mistake(sandbox: Sandbox) -> None:
    state = sandbox.state
    assert "everything has ended" in sandbox.done("down")
    assert not any(mark.is_alive for mark in (state.keeper, *state.processes.values()))
    assert not existing(*state.folders, state.socket)
    assert State.read(sandbox.folder) is None
    assert log_of(sandbox.folder, "sidecar").exists()
    assert "nothing is running" in sandbox.done("down")
