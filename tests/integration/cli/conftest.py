"""Commands typed without a terminal, on a database with letters of several kinds."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner

from dlq_handler.database.engine import Database
from dlq_handler.main import app
from tests.support.builders import a_dead_letter, a_death
from tests.support.deciding import letter_ender
from tests.support.host_tables import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, str]]:
        """Of a table without a terminal, by the names in its first line."""
        header, *lines = [line.split("\t") for line in self.out.splitlines()]
        return [dict(zip(header, line, strict=True)) for line in lines]

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


class Terminal:
    """In this process, in a thread of its own: a process for each command takes seconds."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)

    async def type(self, *words: str, **environment: str) -> Typed:
        result = await asyncio.to_thread(
            CliRunner().invoke, app, list(words), env=self.environment | environment
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Typed(code=result.exit_code, out=result.stdout, err=result.stderr)


@pytest.fixture(autouse=True)
def log_as_it_was() -> Iterator[None]:
    """A command configures the log of its process."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture
def terminal(database: str) -> Terminal:
    return Terminal({"ATTUNE__DATABASE__URL": database, "ATTUNE__MESSAGE_QUEUE__URL": "amqp://127.0.0.1:1/"})


@pytest.fixture
async def letters(store: Database, host: Host) -> list[int]:
    """Ids, oldest first: three of worker 7 expired, one of worker 8 was rejected, one is unreadable."""
    executions = await host.add_executions(4)
    decide = letter_ender(store)
    batch = [await host.letter_for(number, worker_id=7) for number in executions[:3]]
    batch.append(
        await host.letter_for(
            executions[3],
            worker_id=8,
            action_ref="core.http",
            death=a_death(reason="rejected", queue="worker.8.executions"),
            first_death_queue="worker.8.executions",
            body=b'{"password": "S3CRET", "url": "http://u:S3CRET@h/"}',
            body_size=51,
            headers=json.dumps({"authorization": "S3CRET", "x-first-death-reason": "rejected"}),
        )
    )
    batch.append(
        a_dead_letter(
            key="odd", execution_id=None, worker_id=None, parse_error="no execution_id", message_id="odd"
        )
    )
    for letter in batch:
        await decide.commit([letter])
    return [row["id"] for row in await host.letters()]
