"""`status` with the times that a replica recorded; `status --watch` on a terminal and in a pipe."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.diagnosis import diagnoses_sql as diagnoses_store
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.view import BrokerFact
from tests.integration.cli.conftest import Terminal
from tests.support.eventually import eventually
from tests.support.host_tables import Host
from tests.support.terminal_window import in_a_terminal
from tests.support.views import NOW, a_view, ago

AS_OF = re.compile(r"as of 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ\n")


@asynccontextmanager
async def in_a_pipe(terminal: Terminal, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "dlq_handler",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **terminal.environment},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def read_line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return (await process.stdout.readline()).decode()


async def ended_by_ctrl_c(process: asyncio.subprocess.Process) -> int:
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(60):
        await process.communicate()
        return await process.wait()


async def test_since_when_is_the_time_that_a_replica_recorded(terminal: Terminal, store: Database) -> None:
    unrecorded = (await terminal.type("status")).out
    [seen] = [one for one in diagnose(a_view(broker=BrokerFact(error="away"))) if one.check == "broker"]
    async with store.transaction() as tx:
        await diagnoses_store.record_change(tx, [replace(seen, since=ago(60))], at=NOW)
    recorded = (await terminal.type("status")).out

    assert unrecorded.splitlines()[1].split("\t")[2:4] == ["broker", "-"]
    assert recorded.splitlines()[1].split("\t")[2:4] == ["broker", "2026-03-01T02:59:00Z"]


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ("0s", "must be at least 1s."),
        ("soon", "must be a duration such as 5s, 10m or 2h."),
        ("1.5s", "must be a duration such as 5s, 10m or 2h."),
    ],
)
async def test_an_invalid_interval_is_refused(terminal: Terminal, given: str, allowed: str) -> None:
    typed = await terminal.type("status", "--watch", given)

    assert (typed.code, typed.out) == (2, "")
    assert f"Invalid value '{given}' for --watch: {allowed}" in typed.err


async def test_a_terminal_is_redrawn_in_place_until_ctrl_c(
    terminal: Terminal, store: Database, host: Host
) -> None:
    async with in_a_terminal("status", "--watch", "1s", environment=terminal.environment) as window:
        await window.shows("every 1 s, answered 0 s ago, Ctrl-C ends", "✕ problem: broker")
        assert "worker-late" not in window.text
        await host.session.execute(
            "INSERT INTO worker (id, name, worker_type, worker_role, last_heartbeat)"
            " VALUES (9, 'worker-late', 'local', 'action', now() - interval '1 h')"
        )
        await window.shows("worker-late (9)")
        window.interrupt()
        assert await window.ended() == 1, "the exit code of the last answer"
        await eventually(lambda: window.raw.count("\x1b[?25l") == window.raw.count("\x1b[?25h"), timeout=60)

    assert "\x1b[1A\x1b[2K" in window.raw, "the cursor goes back up, and lines are erased"
    assert "Traceback" not in window.text


async def test_in_a_pipe_each_answer_begins_with_its_time(terminal: Terminal, store: Database) -> None:
    async with in_a_pipe(terminal, "status", "--watch", "1s") as process:
        answers: list[list[str]] = []
        while len(answers) < 3:
            line = await read_line(process)
            if AS_OF.fullmatch(line):
                answers.append([])
            else:
                answers[-1].append(line)
        assert await ended_by_ctrl_c(process) == 1

    first, second, _ = answers
    assert first[0].startswith("STATE\tCOMPONENT\tCHECK\t")
    assert first[1].startswith("problem\tbroker\tbroker\t")
    assert [line.split("\t")[:3] for line in second] == [line.split("\t")[:3] for line in first]


async def test_as_json_each_answer_is_one_line(terminal: Terminal, store: Database) -> None:
    async with in_a_pipe(terminal, "status", "--watch", "1s", "--output", "json") as process:
        first, second = [json.loads(await read_line(process)) for _ in range(2)]
        assert await ended_by_ctrl_c(process) == 1

    assert first.keys() == {"conclusion", "at", "diagnoses"}
    assert first["conclusion"] == second["conclusion"] == "problem"
    assert first["at"] < second["at"]
