"""`dlq-handler health`: light, right about where the listener is, and honest about who answers there."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlq_handler.cli.health import LOOPBACK, check_health, listener_address
from dlq_handler.settings import load

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def listener(answer: bytes) -> Iterator[int]:
    """Gives `answer` to the one who asks for /healthz, on a port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            link, _ = server.accept()
            with link:
                asked = link.recv(1000)
                link.sendall(
                    answer if asked.startswith(b"GET /healthz HTTP/1.") else b"HTTP/1.1 404 Not Found\r\n"
                )

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"HTTP/1.1 200 OK", 0),
        (b"HTTP/1.1 503 Service Unavailable", 1),
        (b"HTTP/1.1", 1),
        (b"220 mail.example ESMTP", 1),
        (b"SSH-2.0-x 200", 1),
    ],
)
def test_only_a_listener_that_says_200_is_alive(
    answer: bytes, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listener(answer + b"\r\n\r\n") as port:
        got = check_health(tmp_path / "none", {"ATTUNE__DLQ_HANDLER__HTTP__PORT": str(port)})
    expected_line = f"{'alive' if code == 0 else 'not alive'}: 127.0.0.1:{port}/healthz: {answer.decode()}"
    assert (got, capsys.readouterr().out.strip()) == (code, expected_line)


def test_what_is_wrong_is_printed_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = b'HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\n{"loops":[{"loop":"gate"}]}'
    with listener(answer) as port:
        got = check_health(tmp_path / "none", {"ATTUNE__DLQ_HANDLER__HTTP__PORT": str(port)})
    said = f'not alive: 127.0.0.1:{port}/healthz: HTTP/1.1 503 Service Unavailable: {{"loops":[{{"loop":"gate"}}]}}'
    assert (got, capsys.readouterr().out.strip()) == (1, said)


def test_without_a_listener_it_is_not_alive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert check_health(tmp_path / "none", {"ATTUNE__DLQ_HANDLER__HTTP__PORT": str(port)}) == 1
    assert "refused" in capsys.readouterr().out


FILES = {
    "plain.yaml": "dlq_handler: {http: {host: 127.0.0.7, port: 1234}}\n",
    "empty.yaml": "",
    "without.yaml": "dlq_handler:\n  http:\ndatabase: {schema: attune}\n",
    "docker.yaml": (ROOT / "config.docker.yaml").read_text(),
    "config.yaml": "dlq_handler: {http: {host: '::', port: 4321}}\n",
    "config.staging.yaml": "dlq_handler: {http: {port: 4322}}\n",
}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"ATTUNE__ENVIRONMENT": "staging"},
        {"ATTUNE_CONFIG": "plain.yaml"},
        {"ATTUNE_CONFIG": "empty.yaml"},
        {"ATTUNE_CONFIG": "without.yaml"},
        {"ATTUNE_CONFIG": "docker.yaml"},
        {"ATTUNE_CONFIG": "plain.yaml", "ATTUNE__DLQ_HANDLER__HTTP__PORT": "77"},
        {"ATTUNE_CONFIG": "plain.yaml", "attune__dlq_handler__http__host": "127.0.0.9"},
        {"ATTUNE_CONFIG": "plain.yaml", "ATTUNE__DLQ_HANDLER__HTTP__PORT": ""},
        {"HOST": "elsewhere", "PORT": "1"},
    ],
)
def test_the_listener_is_looked_for_where_the_settings_put_it(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    http = load(None, environ).settings.dlq_handler.http
    assert listener_address(None, environ) == (LOOPBACK.get(http.host, http.host), str(http.port))
    named = tmp_path / "plain.yaml"
    http = load(named, environ).settings.dlq_handler.http
    assert listener_address(named, environ) == (http.host, str(http.port))


@pytest.mark.parametrize("text", ["- a list\n", "{broken", "dlq_handler: 7\n", "dlq_handler: {http: [1]}\n"])
def test_a_file_that_cannot_be_used_is_no_crash(text: str, tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text(text)
    assert listener_address(tmp_path / "odd.yaml", {}) == ("127.0.0.1", "9464")


def test_it_loads_nothing_that_is_heavy(tmp_path: Path) -> None:
    """Container runtimes run it every few seconds: all of ours takes a second of CPU to import, this a twentieth."""
    script = (
        "import runpy, sys\n"
        "sys.argv = ['dlq-handler', 'health']\n"
        "try: runpy.run_module('dlq_handler', run_name='__main__')\n"
        "except SystemExit as end: print(end.code, *sys.modules)\n"
    )
    environment = os.environ | {"ATTUNE_CONFIG": str(ROOT / "config.docker.yaml"), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env=environment | {"ATTUNE__DLQ_HANDLER__HTTP__PORT": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    code, *loaded = ran.stdout.splitlines()[-1].split()
    assert code == "1"
    assert "dlq_handler.cli.health" in loaded
    assert not {"dlq_handler.main", "dlq_handler.settings", "pydantic", "typer", "asyncio", "http.client"} & {
        *loaded
    }
