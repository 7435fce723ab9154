"""scripts/stop-workers-test.sh as people run it, against one sandbox: both losses, Docker Compose, and failures."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sandbox.servers.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = str(ROOT / "scripts" / "stop-workers-test.sh")
WORKERS = {"worker-shell", "worker-python", "worker-node"}

# A `docker` that acts on the sandbox. The ports come from the environment.
DOCKER = """#!/bin/sh
[ "$1" = compose ] || exit 64
command=$2
shift 2
echo "$command $*" >> "$DOCKER_CALLS"
case $command in
    ps) echo 4f1d3c5e2a0b ;;
    port) eval "echo 127.0.0.1:\\$PORT_$2" ;;
    kill | stop) for name in "$@"; do "$SANDBOX_RUN" break "$name" --how "$command" & done; wait ;;
    start) for name in "$@"; do "$SANDBOX_RUN" repair "$name" & done; wait ;;
    *) exit 64 ;;
esac
"""


@dataclass(frozen=True)
class Sandbox:
    folder: Path
    run: str
    """What ./run is, without the setting up."""

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SANDBOX_FOLDER": str(self.folder), "RUN": self.run}

    @property
    def urls(self) -> dict[str, str]:
        urls: dict[str, str] = json.loads((self.folder / "state.json").read_text())["urls"]
        return urls

    def command(self, *arguments: str) -> str:
        done = subprocess.run(
            [self.run, *arguments],
            env=self.environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def running(self) -> set[str]:
        return set(re.findall(r"^(\S+) +runs", self.command("status"), re.MULTILINE))


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    folder = tmp_path_factory.mktemp("stop-workers")
    run = an_executable(folder / "run", f'#!/bin/sh\nexec "{sys.executable}" -m sandbox.stage "$@"\n')
    opened = Sandbox(folder / "sandbox", run)
    try:
        opened.command("up")
        yield opened
    finally:
        opened.command("down")


def an_executable(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def script(environment: Mapping[str, str], *options: str) -> tuple[int, str]:
    """Its exit code, and all it says."""
    done = subprocess.run(
        ["sh", SCRIPT, *options],
        env=environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        cwd=ROOT,
    )
    return done.returncode, done.stdout


def says_in_order(output: str, parts: Sequence[str]) -> None:
    place = 0
    for part in parts:
        found = re.compile(part).search(output, place)
        assert found, f"no {part!r} (in this order) in:\n{output}"
        place = found.end()


AFTERWARDS = (
    r"empty: attune\.dlx\.queue",
    r"empty: attune\.dlx\.sidecar\.queue",
    r"all workers are back: 3 active",
)
GOES_ON = (r"execution \d+: completed, ended by: its worker\n", r"OK\n$")


def test_killed_workers_are_given_work_and_it_expires(sandbox: Sandbox) -> None:
    code, output = script(sandbox.environment)

    assert code == 0, output
    says_in_order(
        output,
        [
            r"taken away \(kill\): worker-shell worker-python worker-node",
            r"execution \d+: scheduled on worker \d+, whose row is still active",
            r"TTL: 5000 ms \(x-message-ttl of worker\.\d+\.executions\)",
            r"execution \d+: failed, ended by: letter; error: Worker queue TTL expired",
            *AFTERWARDS,
            *GOES_ON,
        ],
    )
    assert sandbox.running() >= WORKERS


def test_stopped_workers_lose_what_was_queued_and_get_nothing_new(sandbox: Sandbox) -> None:
    code, output = script(sandbox.environment, "--how", "stop")

    assert code == 0, output
    says_in_order(
        output,
        [
            r"taken away \(stop\): worker-python worker-node",
            r"these wait in its queue: \d+ \d+\n",
            r"taken away \(stop\): worker-shell",
            r"execution \d+: failed, ended by: letter; error: Worker queue TTL expired",
            r"execution \d+: failed, ended by: letter; error: Worker queue TTL expired",
            r"execution \d+: abandoned, ended by: monitor",
            r"execution \d+, asked for when no worker was left: (requested|scheduling)",
            *AFTERWARDS,
            r"execution \d+: completed, ended by: its worker, for it was announced again",
            *GOES_ON,
        ],
    )
    assert sandbox.running() >= WORKERS


def test_docker_compose_is_found_and_asked_for_everything(sandbox: Sandbox, tmp_path: Path) -> None:
    an_executable(tmp_path / "docker", DOCKER)
    urls, calls = sandbox.urls, tmp_path / "calls"
    user = urlsplit(urls["amqp"])
    environment = {
        **sandbox.environment,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SANDBOX_RUN": sandbox.run,
        "DOCKER_CALLS": str(calls),
        "PORT_8080": str(urlsplit(urls["api"]).port),
        "PORT_15672": str(urlsplit(urls["management"]).port),
        "PORT_9464": str(urlsplit(urls["ops"]).port),
        "BROKER_USER": user.username or "",
        "RABBITMQ_PASSWORD": user.password or "",
        "HTTP_CLIENT": "python3",
    }
    # What the stand-in calls must find the sandbox, the script must not.
    an_executable(
        tmp_path / "run", f'#!/bin/sh\nSANDBOX_FOLDER="{sandbox.folder}" exec "{sandbox.run}" "$@"\n'
    )
    environment |= {"SANDBOX_FOLDER": str(tmp_path / "none"), "SANDBOX_RUN": str(tmp_path / "run")}

    code, output = script(environment)

    assert code == 0, output
    says_in_order(
        output, [r"target: compose", r"ended by: letter; error: Worker queue TTL expired", *AFTERWARDS]
    )
    everyone = "worker-shell worker-python worker-node"
    asked = calls.read_text().splitlines()
    assert [one for one in asked if one.endswith(everyone)] == [f"kill {everyone}", f"start {everyone}"]
    assert {"ps --quiet api", "port api 8080", "port rabbitmq 15672", "port dlq-handler 9464"} <= set(asked)


def test_workers_are_brought_back_when_it_is_interrupted(sandbox: Sandbox) -> None:
    begun = subprocess.Popen(
        ["sh", SCRIPT], env=sandbox.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert begun.stdout is not None
        before = ""
        while "scheduled on worker" not in before:
            line = begun.stdout.readline()
            assert line, before
            before += line
        begun.send_signal(signal.SIGINT)
        output, _ = begun.communicate(timeout=120)
    finally:
        begun.kill()

    assert begun.returncode == 130
    assert "bringing the workers back: worker-shell worker-python worker-node" in output
    assert sandbox.running() >= WORKERS


@pytest.mark.parametrize(
    ("options", "environment", "code", "says"),
    [
        (["--how", "maybe"], {}, 64, "--how is kill or stop"),
        (["--target"], {}, 64, "--target needs a value"),
        (["--target", "sandbox"], {}, 1, "the sandbox is not running: ./run up"),
        ([], {"COMPOSE": "false"}, 1, "neither the sandbox nor Docker Compose runs here"),
        (["--target", "compose"], {"COMPOSE": "false"}, 1, "set API_URL"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(
    tmp_path: Path, options: list[str], environment: dict[str, str], code: int, says: str
) -> None:
    ended, output = script({**os.environ, "SANDBOX_FOLDER": str(tmp_path), **environment}, *options)

    assert (ended, says in output) == (code, True), output


def test_without_a_sidecar_it_fails_and_says_so_before_anything_is_broken(sandbox: Sandbox) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    code, output = script({**sandbox.environment, "OPS_URL": nowhere})

    assert code == 1
    assert f"no sidecar is ready at {nowhere}: lost executions would not end. Start it" in output
    assert "taken away" not in output


def test_an_execution_that_no_letter_ended_fails_it(sandbox: Sandbox) -> None:
    # The last test of this file: the sidecar stays away.
    sandbox.command("break", "sidecar")
    code, output = script({**sandbox.environment, "OPS_URL": ""})

    assert code == 1
    assert (
        "was not ended by its letter but by: monitor: execution_timeout_monitor. Is a sidecar running"
        in output
    )
    assert sandbox.running() >= WORKERS
