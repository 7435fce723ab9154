"""Which server is taken, and what is said when there is none."""

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from sandbox.server_programs.errors import SourceUnavailable
from sandbox.servers import (
    NoServer,
    NotPrivate,
    PostgreSQL,
    PrivatePostgreSQL,
    PrivateRabbitMQ,
    RabbitMQ,
    Servers,
    find,
    find_postgresql,
    find_rabbitmq,
)
from sandbox.servers.docker import POSTGRESQL_IMAGE, RABBITMQ_IMAGE, ContainedRabbitMQ
from sandbox.servers.ports import free_port

NO_REGISTRY = 'Get "https://registry.invalid/v2/":\n dial tcp: lookup registry.invalid: no such host'
NO_IMAGE = "No such image: whatever was asked for"
VERSION = {"ApiVersion": "1.41", "MinAPIVersion": "1.12", "Version": "20.10", "Os": "linux", "Arch": "amd64"}


class _Engine(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.endswith("/_ping"):
            self._answer(200, "OK")
        elif self.path.endswith("/version"):
            self._answer(200, VERSION)
        else:
            self._answer(404, {"message": NO_IMAGE})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "/images/create" in self.path:
            self._answer(500, {"message": NO_REGISTRY})
        else:
            self._answer(404, {"message": NO_IMAGE})

    def _answer(self, status: int, body: object) -> None:
        sent = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_request(self, *_: object) -> None:
        """Quiet: what a test prints is for its failure."""


@contextmanager
def engine_without_images() -> Iterator[str]:
    """Its address, for DOCKER_HOST."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Engine) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def closed(*_: object, **__: object) -> None:
    raise SourceUnavailable("closed for this test")


@pytest.mark.parametrize(
    ("variable", "scheme", "find_server"),
    [(find.AMQP_URL, "amqp", find_rabbitmq), (find.DATABASE_URL, "postgresql", find_postgresql)],
)
async def test_a_named_server_that_does_not_answer_is_an_error_and_no_other_is_used(
    monkeypatch: pytest.MonkeyPatch, variable: str, scheme: str, find_server: Callable[[], Awaitable[object]]
) -> None:
    monkeypatch.setenv(variable, f"{scheme}://some:one@127.0.0.1:{free_port()}/")
    monkeypatch.setattr(find, "GIVEN_SECONDS", 0.5)
    with pytest.raises(NoServer, match=f"{variable} is set, but"):
        await find_server()


async def test_a_named_database_that_refuses_us_is_an_error_without_the_password(
    monkeypatch: pytest.MonkeyPatch, postgres: PostgreSQL
) -> None:
    monkeypatch.setenv(
        find.DATABASE_URL, f"postgresql://nosuch:hunter2@{postgres.host}:{postgres.port}/postgres"
    )
    with pytest.raises(NoServer) as refused:
        await find_postgresql()
    assert find.DATABASE_URL in str(refused.value)
    assert "hunter2" not in str(refused.value)


async def test_named_servers_are_taken_said_and_not_ours_to_kill(
    monkeypatch: pytest.MonkeyPatch, rabbitmq: RabbitMQ, postgres: PostgreSQL
) -> None:
    monkeypatch.setenv(find.AMQP_URL, rabbitmq.amqp_url)
    monkeypatch.setenv(find.MANAGEMENT_URL, rabbitmq.management_url)
    monkeypatch.setenv(find.DATABASE_URL, postgres.url)
    said: list[str] = []
    named_broker = await find_rabbitmq(print_line=said.append)
    named_database = await find_postgresql(print_line=said.append)
    assert said == [f"RabbitMQ: named by {find.AMQP_URL}", f"PostgreSQL: named by {find.DATABASE_URL}"]
    for forbidden in (named_broker.kill, named_broker.stop, named_database.kill, named_database.start):
        with pytest.raises(NotPrivate, match="launch a private one"):
            await forbidden()


async def test_with_every_way_closed_the_error_names_each_and_the_ways_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(find.AMQP_URL, raising=False)
    monkeypatch.setattr(ContainedRabbitMQ, "run", closed)
    monkeypatch.setattr(PrivateRabbitMQ, "of_this_machine", closed)
    monkeypatch.setattr(PrivateRabbitMQ, "of_packages", closed)
    with pytest.raises(NoServer) as none:
        await find_rabbitmq()
    for part in (
        f"{find.AMQP_URL} is not set",
        "Docker: closed",
        "this machine: closed",
        "packages: closed",
        "install RabbitMQ",
    ):
        assert part in str(none.value)


async def test_a_pair_with_one_missing_is_one_readable_error_and_the_other_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(find.DATABASE_URL, raising=False)
    monkeypatch.setenv(find.AMQP_URL, f"amqp://guest:guest@127.0.0.1:{free_port()}/")
    monkeypatch.setattr(find, "GIVEN_SECONDS", 0.5)
    with pytest.raises(NoServer, match=find.AMQP_URL):
        async with Servers.find(print_line=lambda _: None):
            pytest.fail("there is no broker")


@pytest.fixture
def private_servers_stood_in_for(
    monkeypatch: pytest.MonkeyPatch, rabbitmq: RabbitMQ, postgres: PostgreSQL
) -> None:
    """The way after Docker leads to servers that run already."""

    async def running_rabbitmq() -> RabbitMQ:
        return rabbitmq

    async def running_postgresql(**_: object) -> PostgreSQL:
        return postgres

    for variable in (find.AMQP_URL, find.DATABASE_URL):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(PrivateRabbitMQ, "of_this_machine", running_rabbitmq)
    monkeypatch.setattr(PrivatePostgreSQL, "of_this_machine", running_postgresql)


@pytest.mark.usefixtures("private_servers_stood_in_for")
async def test_docker_without_images_is_named_in_one_line_and_the_next_way_is_taken(
    monkeypatch: pytest.MonkeyPatch, rabbitmq: RabbitMQ, postgres: PostgreSQL
) -> None:
    said: list[str] = []
    with engine_without_images() as engine:
        monkeypatch.setenv("DOCKER_HOST", engine)
        assert await find_rabbitmq(print_line=said.append) is rabbitmq
        assert await find_postgresql(print_line=said.append) is postgres
    reason = 'Get "https://registry.invalid/v2/": dial tcp: lookup registry.invalid: no such host; trying the next way'
    assert said == [
        f"RabbitMQ: Docker answers, but cannot run {RABBITMQ_IMAGE}: {reason}",
        f"RabbitMQ: {rabbitmq.origin}",
        f"PostgreSQL: Docker answers, but cannot run {POSTGRESQL_IMAGE}: {reason}",
        f"PostgreSQL: {postgres.origin}",
    ]


@pytest.mark.usefixtures("private_servers_stood_in_for")
async def test_docker_that_is_not_there_is_not_worth_a_line(
    monkeypatch: pytest.MonkeyPatch, rabbitmq: RabbitMQ
) -> None:
    said: list[str] = []
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{free_port()}")
    assert await find_rabbitmq(print_line=said.append) is rabbitmq
    assert said == [f"RabbitMQ: {rabbitmq.origin}"]
