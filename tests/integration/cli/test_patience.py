"""While the database is slow, every command reports its progress within two seconds."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
import typer

from dlq_handler.cli import patience
from dlq_handler.database.engine import Database
from dlq_handler.errors import Unavailable
from dlq_handler.main import app
from tests.integration.cli.conftest import Terminal
from tests.support.eventually import eventually
from tests.support.tcp_proxy import TcpProxy
from tests.support.terminal_window import in_a_terminal

ASKING_THE_DATABASE = {
    "audit list": "",
    "brake release": "--comment why",
    "brake status": "",
    "canary run": "",
    "doctor": "--no-canary",
    "executions explain": "1",
    "flows list": "",
    "flows show": "one",
    "grants": "",
    "letters export": "--worker 7",
    "letters groups": "",
    "letters list": "",
    "letters reprocess": "1 --comment why",
    "letters show": "1",
    "migrate": "",
    "queues list": "",
    "queues orphans": "",
    "status": "",
    "topology apply": "",
    "topology check": "",
    "topology show": "",
    "topology declare-worker-queue": "7 --yes",
    "workers list": "",
}
# These follow the record of a flow, or write a file, and print their own progress.
WITH_THEIR_OWN_PROGRESS = {"flows start", "flows stop", "queues retire", "topology plan"}
# `run` says in its log what it waits for.
ASKING_NO_DATABASE = {"config check", "config show", "health", "run"}


def commands(above: Any, *names: str) -> Iterator[str]:
    below = getattr(above, "commands", None)
    if below is None:
        yield " ".join(names)
        return
    for name, command in below.items():
        yield from commands(command, *names, name)


def test_every_command_is_looked_at_here() -> None:
    assert sorted(commands(typer.main.get_command(app))) == sorted(
        ASKING_THE_DATABASE.keys() | ASKING_NO_DATABASE | WITH_THEIR_OWN_PROGRESS
    )


async def test_every_command_says_that_it_waits_before_the_database_has_answered(
    terminal: Terminal, database: str, letters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[str] = []
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(patience, "is_watched", lambda: True)
    monkeypatch.setattr(patience, "print", lambda line, **_: printed.append(line), raising=False)
    async with TcpProxy.to(database) as slow:
        for command, options in ASKING_THE_DATABASE.items():
            printed.clear()
            slow.freeze()
            async with asyncio.TaskGroup() as typing:
                words = (*command.split(), *options.split())
                typing.create_task(_type(terminal, *words, ATTUNE__DATABASE__URL=slow.url))
                try:
                    await eventually(lambda: printed)
                finally:
                    await slow.heal()

            assert printed[0].startswith("still "), command


async def _type(terminal: Terminal, *words: str, **environment: str) -> None:
    with suppress(Unavailable):  # some need the broker afterwards, and none is there
        await terminal.type(*words, **environment)


async def test_a_locked_table_is_waited_for_with_progress_on_stderr(
    terminal: Terminal, letters: list[int], store: Database
) -> None:
    typed = ("letters", "show", str(letters[0]))
    environment = terminal.environment | {"ATTUNE__DLQ_HANDLER__DATABASE__LOCK_TIMEOUT_MS": "20000"}
    async with AsyncExitStack() as stack:
        async with store.transaction() as tx:
            await tx.run("LOCK TABLE own.letter IN ACCESS EXCLUSIVE MODE")
            window = await stack.enter_async_context(in_a_terminal(*typed, environment=environment))
            await window.shows("still reading the dead letter (2 s) …")
        assert await window.ended() == 0
        await window.shows("worker.7.executions")
