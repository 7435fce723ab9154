"""Which server is taken, and what is said when there is none."""

import pytest

from dlq_handler.sandbox.server_programs.errors import WayClosed
from dlq_handler.sandbox.servers import (
    NoServer,
    NotPrivate,
    PostgreSQL,
    PrivateRabbitMQ,
    RabbitMQ,
    Servers,
    find,
    find_postgresql,
    find_rabbitmq,
)
from dlq_handler.sandbox.servers.docker import ContainedRabbitMQ
from dlq_handler.sandbox.servers.ports import free_port


def nobody(*_: object, **__: object) -> None:
    raise WayClosed("closed for this test")


async def test_a_named_broker_that_is_silent_is_an_error_and_no_other_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(find.AMQP_URL, f"amqp://guest:guest@127.0.0.1:{free_port()}/")
    monkeypatch.setattr(find, "GIVEN_SECONDS", 0.5)
    with pytest.raises(NoServer, match=f"{find.AMQP_URL} is set, but"):
        await find_rabbitmq()


async def test_a_named_database_that_is_silent_is_an_error_and_no_other_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(find.DATABASE_URL, f"postgresql://somebody@127.0.0.1:{free_port()}/some")
    monkeypatch.setattr(find, "GIVEN_SECONDS", 0.5)
    with pytest.raises(NoServer, match=f"{find.DATABASE_URL} is set, but"):
        await find_postgresql()


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
    named_broker = await find_rabbitmq(say=said.append)
    named_database = await find_postgresql(say=said.append)
    assert said == [f"RabbitMQ: named by {find.AMQP_URL}", f"PostgreSQL: named by {find.DATABASE_URL}"]
    for forbidden in (named_broker.kill, named_broker.stop, named_database.kill, named_database.start):
        with pytest.raises(NotPrivate, match="launch a private one"):
            await forbidden()


async def test_with_every_way_closed_the_error_names_each_and_the_ways_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(find.AMQP_URL, raising=False)
    monkeypatch.setattr(ContainedRabbitMQ, "run", nobody)
    monkeypatch.setattr(PrivateRabbitMQ, "of_this_machine", nobody)
    monkeypatch.setattr(PrivateRabbitMQ, "of_packages", nobody)
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
        async with Servers.find(say=lambda _: None):
            pytest.fail("there is no broker")
