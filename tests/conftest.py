"""The world of every test: real servers for the session, a vhost and a database of its own for each test.

Lazy: a test that asks for no server starts none. Nothing is skipped: where no server can be had, the test
that needs it fails and says which ways there are.
"""

import asyncio
import signal
import sys
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import PurePosixPath

import pytest
import pytest_asyncio
from hypothesis import settings

from sandbox.attune import schema
from sandbox.attune.defects import Defect
from sandbox.servers import PostgreSQL, RabbitMQ, find_postgresql, find_rabbitmq


def seconds_per_folder(reports: Iterable[pytest.TestReport]) -> list[tuple[str, float, int]]:
    """Folder, seconds (fixtures included) and number of tests."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: defaultdict[str, set[str]] = defaultdict(set)
    for report in reports:
        folder = folder_of(report.nodeid)
        seconds[folder] += report.duration
        tests[folder].add(report.nodeid)
    return sorted(
        ((folder, spent, len(tests[folder])) for folder, spent in seconds.items()), key=lambda row: -row[1]
    )


def folder_of(nodeid: str) -> str:
    """tests/unit as one, integration tests by their subject."""
    folders = PurePosixPath(nodeid.partition("::")[0]).parts[:-1]
    return "/".join(folders[:3] if "integration" in folders else folders[:2])


# A process in the background of a script ignores SIGINT, and so would every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no failure: how long one example takes says nothing about what it holds.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Also with several processes: their reports all come to this one."""
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    folders = seconds_per_folder(report for report in reports if isinstance(report, pytest.TestReport))
    if len(folders) > 1:
        terminalreporter.section("time per folder")
        for folder, seconds, tests in folders:
            terminalreporter.write_line(f"{seconds:8.1f} s  {folder} ({tests} tests)")


@pytest.fixture(scope="session")
def print_line(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print a line that is seen although pytest captures what tests print."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    terminal = request.config.pluginmanager.getplugin("terminalreporter")
    is_one_of_several = hasattr(request.config, "workerinput")

    def say_aloud(line: str) -> None:
        if capture is None or terminal is None:
            print(line)
            return
        with capture.global_and_fixture_disabled():
            if is_one_of_several:
                # Its only way to the terminal: whatever else it writes stays with its parent.
                print(line, file=sys.stderr, flush=True)
            else:
                terminal.ensure_newline()
                terminal.write_line(line)

    return say_aloud


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def rabbitmq(print_line: Callable[[str], None]) -> AsyncIterator[RabbitMQ]:
    async with await find_rabbitmq(print_line=print_line) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres(print_line: Callable[[str], None]) -> AsyncIterator[PostgreSQL]:
    """Not durable: tests that kill a PostgreSQL launch their own."""
    async with await find_postgresql(durable=False, print_line=print_line) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def attune_template(postgres: PostgreSQL) -> AsyncIterator[str]:
    """A database with stock Attune's schema, copied for each test: that is ten times quicker than installing
    it.
    """
    name = f"template_{uuid.uuid4().hex[:12]}"
    await schema.install(await postgres.create_database(name))
    yield name
    await postgres.drop_database(name)


@pytest.fixture
async def vhost(rabbitmq: RabbitMQ) -> AsyncIterator[str]:
    """The AMQP URL of a vhost that only this test uses."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield await rabbitmq.create_vhost(name)
    async with asyncio.timeout(30):
        await rabbitmq.delete_vhost(name)


@pytest.fixture
def template(attune_template: str) -> str:
    """What the database of a test is a copy of."""
    return attune_template


@pytest.fixture
async def database(postgres: PostgreSQL, template: str) -> AsyncIterator[str]:
    """The URL of a database with stock Attune's schema that only this test uses."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    yield await postgres.create_database(name, template)
    async with asyncio.timeout(30):
        await postgres.drop_database(name)


@pytest.fixture
async def admission_works(database: str) -> None:
    """Actions with a limit run in this database: defect D15 of stock Attune is cured."""
    await schema.cure(database, frozenset({Defect.D15}))


@pytest.fixture
async def empty_database(postgres: PostgreSQL) -> AsyncIterator[str]:
    """The URL of a database with nothing in it that only this test uses."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    yield await postgres.create_database(name)
    async with asyncio.timeout(30):
        await postgres.drop_database(name)
